//! Writing a status so that the server has exactly that status.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::Request,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    call::{CallError, within_limit},
    raw::{Part, metadata},
};

/// Parameters of a server-side apply that takes over all applied fields.
pub fn as_manager(manager: &str) -> PatchParams {
    PatchParams::apply(manager).force()
}

/// Applies the status of `object` as `manager`, and returns the version that it made.
///
/// Server-side apply leaves fields in place that another manager has written, such as a handler of kubernetes-nmstate.
/// They are removed by a second request. Where they cannot even be read, the whole status is removed first.
pub async fn status<K, S>(
    api: &Api<K>,
    object: &K,
    status_of: fn(&K) -> &S,
    manager: &str,
) -> Result<String, CallError>
where
    K: Resource + Serialize + Clone + Debug,
    S: Serialize + DeserializeOwned + Default + PartialEq,
{
    let name = object.name_any();
    let applying = as_manager(manager);
    let removing = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let mut answer: Answer<S> = patch_status(api, &name, &applying, &Patch::Apply(object)).await?;
    if answer.status.0.is_err() {
        let removal = Patch::Merge(json!({ "status": null }));
        let _: Answer<S> = patch_status(api, &name, &removing, &removal).await?;
        answer = patch_status(api, &name, &applying, &Patch::Apply(object)).await?;
    }
    let wanted = status_of(object);
    if let Ok(stored) = &answer.status.0
        && stored != wanted
        && let Some(leftovers) = leftovers(&value(stored), &value(wanted))
    {
        let removal = Patch::Merge(json!({ "status": leftovers }));
        answer = patch_status(api, &name, &removing, &removal).await?;
    }
    Ok(answer.metadata.resource_version.unwrap_or_default())
}

/// The parts of a response that matter.
#[derive(Deserialize)]
struct Answer<S> {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    #[serde(default, bound(deserialize = "S: DeserializeOwned + Default"))]
    status: Part<S>,
}

async fn patch_status<K, S>(
    api: &Api<K>,
    name: &str,
    params: &PatchParams,
    patch: &Patch<impl Serialize>,
) -> Result<Answer<S>, CallError>
where
    K: Resource + Clone,
    S: DeserializeOwned + Default,
{
    let request = Request::new(api.resource_url()).patch_subresource("status", name, params, patch);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let text = within_limit(api.clone().into_client().request_text(request)).await?;
    Ok(serde_json::from_str(&text).map_err(kube::Error::SerdeError)?)
}

fn value(status: &impl Serialize) -> Value {
    // A status of this API is an object with strings as keys, which always becomes a value.
    serde_json::to_value(status).unwrap_or_default()
}

/// The merge patch that removes the fields of `stored` that `wanted` does not have; `None` if there are none.
fn leftovers(stored: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(stored), Value::Object(wanted)) = (stored, wanted) else { return None };
    let removed: Map<String, Value> = stored
        .iter()
        .filter_map(|(key, value)| match wanted.get(key) {
            None => Some((key.clone(), Value::Null)),
            Some(kept) => Some((key.clone(), leftovers(value, kept)?)),
        })
        .collect();
    (!removed.is_empty()).then_some(Value::Object(removed))
}

/// The merge patch that turns `stored` into exactly `wanted`, for a status with a single writer.
pub fn exact_merge(stored: &impl Serialize, wanted: &impl Serialize) -> Value {
    let (stored, mut wanted) = (value(stored), value(wanted));
    if let Some(leftovers) = leftovers(&stored, &wanted) {
        merge(&mut wanted, leftovers);
    }
    wanted
}

fn merge(into: &mut Value, other: Value) {
    match (into, other) {
        (Value::Object(into), Value::Object(other)) => {
            for (key, value) in other {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, other) => *into = other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_wanted_is_removed_and_nothing_else() {
        for (stored, wanted, removal) in [
            (json!({"a": 1}), json!({"a": 2, "b": 3}), None),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null}))),
            (
                json!({"a": {"x": {"p": 1, "q": 2}, "y": 3}, "b": 1}),
                json!({"a": {"x": {"p": 1}, "y": 3}, "b": 1}),
                Some(json!({"a": {"x": {"q": null}}})),
            ),
            // A list is written as a whole.
            (json!({"a": [{"x": 1}, 2]}), json!({"a": [{}]}), None),
        ] {
            assert_eq!(leftovers(&stored, &wanted), removal, "{stored} and {wanted}");
        }
    }

    #[test]
    fn what_is_merged_is_what_is_wanted() {
        for (stored, wanted, patch) in [
            (json!({}), json!({"a": 1}), json!({"a": 1})),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"a": 1, "b": null})),
            (json!({"m": {"3": 1, "4": 2}}), json!({"m": {"4": 1}}), json!({"m": {"3": null, "4": 1}})),
            (json!({"m": {"3": 1}}), json!({}), json!({"m": null})),
        ] {
            assert_eq!(exact_merge(&stored, &wanted), patch, "{stored} to {wanted}");
        }
    }
}
