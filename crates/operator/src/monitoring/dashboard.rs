//! A dashboard for Grafana, in a ConfigMap with the label that its sidecar loads.

use k8s_openapi::api::core::v1::ConfigMap;

use crate::Settings;

/// The dashboard itself.
pub const DASHBOARD: &str = include_str!("dashboard.json");

/// The ConfigMap with the dashboard.
pub(crate) fn dashboard(settings: &Settings) -> ConfigMap {
    let mut metadata = settings.metadata_in(&settings.namespace, "kubernetes-nmstate-dashboard");
    metadata.labels.get_or_insert_default().insert("grafana_dashboard".to_owned(), "1".to_owned());
    ConfigMap {
        metadata,
        data: Some([("kubernetes-nmstate.json".to_owned(), DASHBOARD.to_owned())].into()),
        ..ConfigMap::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_panel_has_a_query_and_overlaps_no_other() {
        let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let mut places = BTreeSet::new();
        for panel in panels {
            let title = panel["title"].as_str().expect("a title");
            assert!(panel["targets"][0]["expr"].as_str().is_some_and(|expr| !expr.is_empty()), "{title}");
            let place = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
            for row in place("y")..place("y") + place("h") {
                for column in place("x")..place("x") + place("w") {
                    assert!(column < 24 && places.insert((row, column)), "{title} is over another one");
                }
            }
        }
    }
}
