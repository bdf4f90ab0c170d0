//! What fills the cluster: most kinds of objects, none of which any controller goes on writing.

use serde_json::{Value, json};

/// The namespace of all of it.
pub const NAMESPACE: &str = "filled";

/// How many objects of each kind there are.
const EACH: usize = 12;

/// Where the objects of the filled namespace, and those without one, are listed.
pub const LISTS: &[&str] = &[
    "/api/v1/namespaces/filled/configmaps",
    "/api/v1/namespaces/filled/secrets",
    "/api/v1/namespaces/filled/serviceaccounts",
    "/api/v1/namespaces/filled/services",
    "/api/v1/namespaces/filled/events",
    "/api/v1/namespaces/filled/pods",
    "/api/v1/namespaces/filled/podtemplates",
    "/api/v1/namespaces/filled/limitranges",
    "/apis/apps/v1/namespaces/filled/deployments",
    "/apis/apps/v1/namespaces/filled/replicasets",
    "/apis/apps/v1/namespaces/filled/statefulsets",
    "/apis/apps/v1/namespaces/filled/daemonsets",
    "/apis/apps/v1/namespaces/filled/controllerrevisions",
    "/apis/batch/v1/namespaces/filled/jobs",
    "/apis/batch/v1/namespaces/filled/cronjobs",
    "/apis/coordination.k8s.io/v1/namespaces/filled/leases",
    "/apis/discovery.k8s.io/v1/namespaces/filled/endpointslices",
    "/apis/networking.k8s.io/v1/namespaces/filled/ingresses",
    "/apis/networking.k8s.io/v1/namespaces/filled/networkpolicies",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/filled/roles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/filled/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/example.com/v1/namespaces/filled/widgets",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/api/v1/namespaces/filled",
    "/api/v1/namespaces/default/pods",
];

/// The definition of a kind, and the namespaces: they come before the rest.
pub fn first() -> Value {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let busy = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "busy", "namespace": "busy" },
        "spec": { "replicas": 0, "selector": selector("busy"), "template": template("busy") } });
    list(vec![definition, namespace(NAMESPACE), namespace("busy"), busy])
}

/// Everything else.
pub fn rest() -> Value {
    let mut objects = Vec::new();
    for number in 0..EACH {
        for (version, kind, namespaced, body) in kinds(number) {
            let mut object = body;
            object["apiVersion"] = json!(version);
            object["kind"] = json!(kind);
            object["metadata"] = json!({ "name": format!("n{number}"), "labels": { "number": number.to_string() } });
            if namespaced {
                object["metadata"]["namespace"] = json!(NAMESPACE);
            }
            objects.push(object);
        }
    }
    list(objects)
}

#[rustfmt::skip]
fn kinds(number: usize) -> Vec<(&'static str, &'static str, bool, Value)> {
    let name = format!("n{number}");
    let name = name.as_str();
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }]);
    let subjects = json!([{ "kind": "User", "apiGroup": rbac, "name": name }]);
    let role = json!({ "kind": "ClusterRole", "apiGroup": rbac, "name": "view" });
    vec![
        ("v1", "ConfigMap", true, json!({ "data": { "text": "x".repeat(1 + number * 700) },
            "binaryData": { "bytes": "AAECAwQFBgcICQoLDA0ODw==" } })),
        ("v1", "Secret", true, json!({ "type": "Opaque", "stringData": { "word": name } })),
        ("v1", "ServiceAccount", true, json!({})),
        // Without a selector no controller keeps its endpoints.
        ("v1", "Service", true, json!({ "spec": { "ports": [{ "port": 80 }] } })),
        ("v1", "PodTemplate", true, json!({ "template": template(name) })),
        ("v1", "LimitRange", true, json!({ "spec": { "limits": [{ "type": "PersistentVolumeClaim",
            "max": { "storage": "1Gi" } }] } })),
        // The scheduler leaves it alone.
        ("v1", "Pod", true, json!({ "spec": { "schedulingGates": [{ "name": "example.com/never" }],
            "containers": [{ "name": "main", "image": "registry.example.com/sleeper:1" }] } })),
        ("apps/v1", "Deployment", true, json!({ "spec": { "replicas": 0, "selector": selector(name),
            "template": template(name) } })),
        ("apps/v1", "StatefulSet", true, json!({ "spec": { "replicas": 0, "serviceName": name,
            "selector": selector(name), "template": template(name) } })),
        ("apps/v1", "ControllerRevision", true, json!({ "revision": number, "data": { "name": name } })),
        ("batch/v1", "Job", true, json!({ "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "main", "image": "registry.example.com/sleeper:1" }] } } } })),
        ("batch/v1", "CronJob", true, json!({ "spec": { "suspend": true, "schedule": "7 3 * * *", "jobTemplate": {
            "spec": { "template": { "spec": { "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "registry.example.com/sleeper:1" }] } } } } } })),
        ("coordination.k8s.io/v1", "Lease", true, json!({ "spec": { "holderIdentity": name } })),
        ("discovery.k8s.io/v1", "EndpointSlice", true, json!({ "addressType": "IPv4",
            "endpoints": [{ "addresses": ["192.0.2.7"] }] })),
        ("networking.k8s.io/v1", "Ingress", true, json!({ "spec": { "defaultBackend": { "service": {
            "name": name, "port": { "number": 80 } } } } })),
        ("networking.k8s.io/v1", "NetworkPolicy", true, json!({ "spec": { "podSelector": selector(name) } })),
        ("rbac.authorization.k8s.io/v1", "Role", true, json!({ "rules": rules })),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", true, json!({ "subjects": subjects, "roleRef": role })),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", false, json!({ "rules": rules })),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", false, json!({ "subjects": subjects, "roleRef": role })),
        ("scheduling.k8s.io/v1", "PriorityClass", false, json!({ "value": number })),
        ("storage.k8s.io/v1", "StorageClass", false, json!({ "provisioner": "example.com/none" })),
        ("node.k8s.io/v1", "RuntimeClass", false, json!({ "handler": "runc" })),
        ("example.com/v1", "Widget", true, json!({ "spec": { "free": { "b": 1, "a": { "deep": [1, 2.5, null] } } } })),
        // Last: its lease runs.
        ("v1", "Event", true, json!({ "involvedObject": { "kind": "Pod", "name": name, "namespace": NAMESPACE },
            "type": "Normal", "reason": "Written", "message": "m" })),
    ]
}

fn selector(name: &str) -> Value {
    json!({ "matchLabels": { "app": name } })
}

fn template(name: &str) -> Value {
    json!({ "metadata": { "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "registry.example.com/sleeper:1" }] } })
}

fn list(items: Vec<Value>) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}
