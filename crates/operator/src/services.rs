//! The Services of the controller: for the API server and for Prometheus.

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use knmstate_api::NMStateSpec;

use crate::{Object, Settings, operands::OperandInputs, workloads::controller::WEBHOOK_PORT};

/// The annotation by which OpenShift creates a certificate in the Secret that it names.
const SERVING_CERTIFICATE: &str = "service.beta.openshift.io/serving-cert-secret-name";
/// The port of the metrics Service, independent of the port of the controller.
pub(crate) const METRICS_SERVICE_PORT: i32 = 8443;
/// The label by which the metrics Service selects its pods.
const MONITORED: (&str, &str) = ("prometheus.nmstate.io", "true");

/// The Secret with the certificate that OpenShift creates for the controller.
pub(crate) fn certificate_of_openshift(settings: &Settings) -> String {
    settings.named("openshift-nmstate-webhook")
}

/// The port of the metrics address; `None` if metrics are off.
pub(crate) fn metrics_port(spec: &NMStateSpec) -> Option<i32> {
    let address = spec.metrics_configuration.bind_address.as_str();
    let (_, port) = address.rsplit_once(':')?;
    port.parse::<u16>().ok().filter(|port| *port != 0).map(i32::from)
}

pub(crate) fn services(inputs: &OperandInputs<'_>) -> Vec<Object> {
    let settings = inputs.settings;
    let mut metadata = settings.metadata_in(&settings.namespace, "nmstate-webhook");
    metadata.annotations =
        Some([(SERVING_CERTIFICATE.to_owned(), certificate_of_openshift(settings))].into());
    let webhook = Service {
        metadata,
        spec: Some(ServiceSpec {
            selector: Some([("name".to_owned(), settings.controller_workload())].into()),
            ports: Some(vec![port("webhook", 443, WEBHOOK_PORT)]),
            // Every pod that listens can answer admission reviews, whether it is Ready or not.
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    let metrics = metrics_port(inputs.spec).map(|target| {
        let mut metadata = settings.metadata_in(&settings.namespace, "nmstate-monitor");
        metadata.labels.get_or_insert_default().insert(MONITORED.0.to_owned(), MONITORED.1.to_owned());
        let selector = [
            (MONITORED.0.to_owned(), MONITORED.1.to_owned()),
            ("name".to_owned(), settings.controller_workload()),
        ];
        Service {
            metadata,
            spec: Some(ServiceSpec {
                selector: Some(selector.into()),
                ports: Some(vec![port("metrics", METRICS_SERVICE_PORT, target)]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    });
    [Some(webhook), metrics].into_iter().flatten().map(Object::from).collect()
}

fn port(name: &str, port: i32, target: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        target_port: Some(IntOrString::Int(target)),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

#[cfg(test)]
mod tests {
    use knmstate_api::nmstate::MetricsConfiguration;

    use super::*;

    #[test]
    fn the_port_of_metrics_is_that_of_the_address() {
        for (address, expected) in [
            (":8089", Some(8089)),
            ("10.0.0.1:9000", Some(9000)),
            ("[::1]:9000", Some(9000)),
            ("0", None),
            (":0", None),
            ("", None),
        ] {
            let spec = NMStateSpec {
                metrics_configuration: MetricsConfiguration { bind_address: address.to_owned() },
                ..NMStateSpec::default()
            };
            assert_eq!(metrics_port(&spec), expected, "{address}");
        }
    }
}
