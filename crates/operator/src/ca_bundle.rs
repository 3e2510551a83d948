//! The CA bundle of the webhooks. The controllers publish it in a ConfigMap, and the operator copies it into the webhook
//! configurations. So the controller's token gives no right to write these, by which its thief could read and change every
//! object of the cluster.
//!
//! The operator creates the ConfigMap empty, because a right to create cannot be restricted by name. Where another
//! component makes the certificate, such as service-ca of OpenShift or cert-manager.io, it also sets the `caBundle`, and
//! the ConfigMap stays empty.

use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::WebhookClientConfig, core::v1::ConfigMap},
};
use x509_parser::pem::Pem;

use crate::{Object, Settings};

/// A bundle is in each of the webhooks of a configuration, and etcd limits an object to 1.5 MiB.
const MAX_SIZE: usize = 256 * 1024;

/// Without content: applying it keeps that of the controllers.
pub(crate) fn ca_bundle(settings: &Settings) -> Vec<Object> {
    let metadata = settings.metadata_in(&settings.namespace, "nmstate-ca-bundle");
    vec![ConfigMap { metadata, ..ConfigMap::default() }.into()]
}

/// The bundle in a text; `None` unless it is certificates in PEM, and not too large.
pub(crate) fn read_bundle(text: &str) -> Option<ByteString> {
    if text.len() > MAX_SIZE {
        return None;
    }
    let mut certificates = 0;
    for block in Pem::iter_from_buffer(text.as_bytes()) {
        let block = block.ok()?;
        if block.label != "CERTIFICATE" || block.parse_x509().is_err() {
            return None;
        }
        certificates += 1;
    }
    (certificates > 0).then(|| ByteString(text.as_bytes().to_vec()))
}

/// Sets the bundle of all webhooks, if the object is a webhook configuration.
pub(crate) fn inject(object: &mut Object, bundle: &ByteString) {
    let set = |client: &mut WebhookClientConfig| client.ca_bundle = Some(bundle.clone());
    match object {
        Object::MutatingWebhookConfiguration(configuration) => {
            let webhooks = configuration.webhooks.iter_mut().flatten();
            webhooks.for_each(|webhook| set(&mut webhook.client_config));
        }
        Object::ValidatingWebhookConfiguration(configuration) => {
            let webhooks = configuration.webhooks.iter_mut().flatten();
            webhooks.for_each(|webhook| set(&mut webhook.client_config));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::ClusterInfo, installation, operands::operands};

    /// A self-signed certificate.
    const CERTIFICATE: &str = "\
        -----BEGIN CERTIFICATE-----\n\
        MIIBeTCCAR+gAwIBAgIUXZlTLcTEDbQIkrC0iXTaqGsHTjcwCgYIKoZIzj0EAwIw\n\
        EjEQMA4GA1UEAwwHbm1zdGF0ZTAeFw0yNjExMTkwNDA4NTBaFw0zNjExMTYwNDA4\n\
        NTBaMBIxEDAOBgNVBAMMB25tc3RhdGUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
        AATtTMNrC4cCiAPJFc0qUC8y+d6Oh03sAEDT1d98SrDxEsCkafei71+uLO9y6OPM\n\
        nAN1sglka5nO71tQT0oI5djho1MwUTAdBgNVHQ4EFgQU/HS/1x1Gscf7LrOsFzfg\n\
        ekBDM1kwHwYDVR0jBBgwFoAU/HS/1x1Gscf7LrOsFzfgekBDM1kwDwYDVR0TAQH/\n\
        BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBwr16MeLFwN8jkDFwdrHgDJTpZuvl2\n\
        MUdy/az0OM172QIhAKPwsNwuq5sbQ1EFBDgGMZaN3LDVTS9rn19nmtF0nhch\n\
        -----END CERTIFICATE-----\n\
    ";

    #[test]
    fn a_bundle_is_certificates_and_nothing_else() {
        let two = CERTIFICATE.repeat(2);
        assert_eq!(read_bundle(&two).unwrap().0, two.as_bytes());
        let key = CERTIFICATE.replace("CERTIFICATE", "PRIVATE KEY");
        let cut = CERTIFICATE.replace("-----END CERTIFICATE-----", "");
        let text = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        let large = CERTIFICATE.repeat(MAX_SIZE / CERTIFICATE.len() + 1);
        for refused in [
            "",
            "hello",
            text,
            &key,
            &cut,
            &large,
            &format!("{CERTIFICATE}{key}"),
            &format!("{CERTIFICATE}{text}"),
        ] {
            assert!(read_bundle(refused).is_none(), "{refused}");
        }
    }

    #[test]
    fn all_webhooks_get_the_bundle_except_on_openshift() {
        let bundles = |cluster: &ClusterInfo| -> Vec<Option<ByteString>> {
            let config = installation::default_config("image");
            let groups = operands(&config, &knmstate_api::NMStateSpec::default(), cluster);
            let objects = groups.into_iter().flat_map(|group| group.objects);
            let of = |object| match object {
                Object::MutatingWebhookConfiguration(configuration) => {
                    let webhooks = configuration.webhooks.into_iter().flatten();
                    webhooks.map(|webhook| webhook.client_config.ca_bundle).collect()
                }
                Object::ValidatingWebhookConfiguration(configuration) => {
                    let webhooks = configuration.webhooks.into_iter().flatten();
                    webhooks.map(|webhook| webhook.client_config.ca_bundle).collect()
                }
                _ => Vec::new(),
            };
            objects.flat_map(of).collect()
        };
        let bundle = read_bundle(CERTIFICATE);
        let plain = ClusterInfo { ca_bundle: bundle.clone(), ..ClusterInfo::default() };
        assert_eq!(bundles(&plain), vec![bundle.clone(); 4]);
        let openshift = ClusterInfo { openshift: true, ..plain };
        assert_eq!(bundles(&openshift), vec![None; 4]);
        assert_eq!(bundles(&ClusterInfo::default()), vec![None; 4]);
    }
}
