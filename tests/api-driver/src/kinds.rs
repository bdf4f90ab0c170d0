//! The kinds of objects that are written, each with its share of the whole and a template.

use serde_json::{Value, json};

/// One kind as the API names it.
pub struct Kind {
    /// The plural name in paths.
    pub resource: &'static str,
    /// The path of the group and version.
    pub base: &'static str,
    /// `apiVersion` and `kind` of an object.
    pub type_meta: (&'static str, &'static str),
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Its share of all objects, in parts of the sum of all shares.
    pub share: u32,
    /// Whether objects vanish at once when deleted: some wait for a controller that does not run here.
    pub deletable: bool,
    /// The object without its metadata, from its name and a random number.
    pub body: fn(&str, u64) -> Value,
}

impl Kind {
    /// The path of a list: of one namespace, or of all.
    pub fn list_path(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.base, self.resource),
            None => format!("{}/{}", self.base, self.resource),
        }
    }

    /// The whole object for a POST.
    pub fn object(&self, namespace: Option<&str>, name: &str, random: u64) -> Value {
        let mut object = (self.body)(name, random);
        object["apiVersion"] = json!(self.type_meta.0);
        object["kind"] = json!(self.type_meta.1);
        object["metadata"] = json!({
            "name": name,
            "labels": { "app": name, "made-by": "api-driver" },
            "annotations": { "example.com/round": "0" },
        });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = json!(namespace);
            if self.resource == "events" {
                object["involvedObject"]["namespace"] = json!(namespace);
            }
        }
        object
    }
}

/// The group of the objects of the driver's own CustomResourceDefinition.
pub const CUSTOM_GROUP: &str = "example.com";

/// The definition of the custom kind.
pub fn custom_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": CUSTOM_GROUP, "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": {
                        "size": { "type": "integer" },
                        "parts": { "type": "array", "items": { "type": "string" } },
                        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    } },
                    "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                } } },
            }],
        },
    })
}

macro_rules! kinds {
    ($($resource:literal $base:literal $version:literal $kind:literal $namespaced:ident $share:literal $deletable:ident
       $body:expr;)*) => {
        &[$(Kind {
            resource: $resource,
            base: $base,
            type_meta: ($version, $kind),
            namespaced: $namespaced,
            share: $share,
            deletable: $deletable,
            body: $body,
        }),*]
    };
}

/// All kinds but namespaces and the definition, which come first. Events come last: their lease runs.
#[rustfmt::skip]
pub const KINDS: &[Kind] = kinds![
    "serviceaccounts" "/api/v1" "v1" "ServiceAccount" true 6 true |_, _| json!({});
    "configmaps" "/api/v1" "v1" "ConfigMap" true 14 true |name, random| json!({
        "data": { "name": name, "text": text(random, 20 + random % 2000) },
        "binaryData": { "bytes": "AAECAwQFBgcICQoLDA0ODw==" } });
    "secrets" "/api/v1" "v1" "Secret" true 10 true |_, random| json!({
        "type": "Opaque", "stringData": { "password": text(random, 24) } });
    "services" "/api/v1" "v1" "Service" true 4 true |name, random| json!({
        "spec": { "selector": { "app": name }, "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
            "type": if random % 5 == 0 { "NodePort" } else { "ClusterIP" } } });
    "endpoints" "/api/v1" "v1" "Endpoints" true 2 true |_, random| json!({
        "subsets": [{ "addresses": [{ "ip": format!("192.0.2.{}", random % 250 + 1) }], "ports": [{ "port": 80 }] }] });
    "pods" "/api/v1" "v1" "Pod" true 9 true |name, _| json!({ "spec": pod_spec(name) });
    "podtemplates" "/api/v1" "v1" "PodTemplate" true 1 true |name, _| json!({ "template": template(name) });
    "replicationcontrollers" "/api/v1" "v1" "ReplicationController" true 1 true |name, random| json!({
        "spec": { "replicas": random % 4, "selector": { "app": name }, "template": template(name) } });
    "limitranges" "/api/v1" "v1" "LimitRange" true 1 true |_, random| json!({
        "spec": { "limits": [{ "type": "PersistentVolumeClaim",
            "max": { "storage": format!("{}Gi", 100 + random % 100) } }] } });
    "persistentvolumes" "/api/v1" "v1" "PersistentVolume" false 1 false |name, _| json!({
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "hostPath": { "path": format!("/srv/{name}") } } });
    "persistentvolumeclaims" "/api/v1" "v1" "PersistentVolumeClaim" true 2 false |_, random| json!({
        "spec": { "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": format!("{}Gi", 1 + random % 9) } } } });
    "deployments" "/apis/apps/v1" "apps/v1" "Deployment" true 5 true |name, random| json!({
        "spec": { "replicas": random % 9, "selector": selector(name), "template": template(name) } });
    "replicasets" "/apis/apps/v1" "apps/v1" "ReplicaSet" true 4 true |name, random| json!({
        "spec": { "replicas": random % 9, "selector": selector(name), "template": template(name) } });
    "statefulsets" "/apis/apps/v1" "apps/v1" "StatefulSet" true 2 true |name, random| json!({
        "spec": { "replicas": random % 5, "serviceName": name, "selector": selector(name), "template": template(name) } });
    "daemonsets" "/apis/apps/v1" "apps/v1" "DaemonSet" true 2 true |name, _| json!({
        "spec": { "selector": selector(name), "template": template(name) } });
    "controllerrevisions" "/apis/apps/v1" "apps/v1" "ControllerRevision" true 1 true |name, random| json!({
        "revision": random % 1000, "data": { "spec": { "template": template(name) } } });
    "jobs" "/apis/batch/v1" "batch/v1" "Job" true 4 true |name, _| json!({ "spec": { "template": run_once(name) } });
    "cronjobs" "/apis/batch/v1" "batch/v1" "CronJob" true 3 true |name, random| json!({
        "spec": { "schedule": format!("{} 3 * * *", random % 60),
            "jobTemplate": { "spec": { "template": run_once(name) } } } });
    "roles" "/apis/rbac.authorization.k8s.io/v1" "rbac.authorization.k8s.io/v1" "Role" true 4 true
        |_, _| json!({ "rules": rules() });
    "rolebindings" "/apis/rbac.authorization.k8s.io/v1" "rbac.authorization.k8s.io/v1" "RoleBinding" true 4 true
        |_, random| json!({ "subjects": subjects(random), "roleRef": role_ref() });
    "clusterroles" "/apis/rbac.authorization.k8s.io/v1" "rbac.authorization.k8s.io/v1" "ClusterRole" false 1 true
        |_, _| json!({ "rules": rules() });
    "clusterrolebindings" "/apis/rbac.authorization.k8s.io/v1" "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" false 1 true
        |_, random| json!({ "subjects": subjects(random), "roleRef": role_ref() });
    "leases" "/apis/coordination.k8s.io/v1" "coordination.k8s.io/v1" "Lease" true 4 true |name, random| json!({
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 15 + random % 30,
            "renewTime": "2026-01-02T03:04:05.000006Z" } });
    "endpointslices" "/apis/discovery.k8s.io/v1" "discovery.k8s.io/v1" "EndpointSlice" true 4 true |_, random| json!({
        "addressType": "IPv4", "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }],
        "endpoints": (0..random % 40 + 1).map(|i| json!({ "addresses": [format!("192.0.2.{}", i + 1)] })).collect::<Vec<_>>() });
    "ingresses" "/apis/networking.k8s.io/v1" "networking.k8s.io/v1" "Ingress" true 2 true |name, _| json!({
        "spec": { "rules": [{ "host": format!("{name}.example.com"), "http": { "paths": [{ "path": "/",
            "pathType": "Prefix", "backend": { "service": { "name": name, "port": { "number": 80 } } } }] } }] } });
    "networkpolicies" "/apis/networking.k8s.io/v1" "networking.k8s.io/v1" "NetworkPolicy" true 2 true |name, _| json!({
        "spec": { "podSelector": selector(name), "policyTypes": ["Ingress"] } });
    "poddisruptionbudgets" "/apis/policy/v1" "policy/v1" "PodDisruptionBudget" true 1 true |name, _| json!({
        "spec": { "minAvailable": 1, "selector": selector(name) } });
    "horizontalpodautoscalers" "/apis/autoscaling/v2" "autoscaling/v2" "HorizontalPodAutoscaler" true 1 true
        |name, random| json!({ "spec": { "minReplicas": 1, "maxReplicas": 2 + random % 8,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name } } });
    "priorityclasses" "/apis/scheduling.k8s.io/v1" "scheduling.k8s.io/v1" "PriorityClass" false 1 true
        |_, random| json!({ "value": random % 100_000 });
    "storageclasses" "/apis/storage.k8s.io/v1" "storage.k8s.io/v1" "StorageClass" false 1 true
        |_, _| json!({ "provisioner": "example.com/none" });
    "runtimeclasses" "/apis/node.k8s.io/v1" "node.k8s.io/v1" "RuntimeClass" false 1 true |_, _| json!({ "handler": "runc" });
    "widgets" "/apis/example.com/v1" "example.com/v1" "Widget" true 10 true |name, random| json!({
        "spec": { "size": random % 1_000_000, "parts": [name, text(random, 30)],
            "free": { "b": 1, "a": { "deep": [1, 2.5, null, true] } } } });
    "events" "/api/v1" "v1" "Event" true 10 true |name, random| json!({
        "involvedObject": { "kind": "Pod", "name": name, "apiVersion": "v1" }, "type": "Normal", "reason": "Written",
        "message": text(random, 80), "source": { "component": "api-driver" }, "count": 1,
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z" });
];

/// `length` printable characters that depend on `seed`.
pub fn text(seed: u64, length: u64) -> String {
    let mut random = Random(seed);
    (0..length)
        .map(|_| char::from(b"abcdefghijklmnopqrstuvwxyz012345"[random.below(32) as usize]))
        .collect()
}

fn selector(name: &str) -> Value {
    json!({ "matchLabels": { "app": name } })
}

fn pod_spec(name: &str) -> Value {
    json!({ "containers": [{ "name": "main", "image": format!("registry.example.com/{name}:1"),
        "env": [{ "name": "NAME", "value": name }], "ports": [{ "containerPort": 8080 }] }] })
}

fn template(name: &str) -> Value {
    json!({ "metadata": { "labels": { "app": name } }, "spec": pod_spec(name) })
}

fn run_once(name: &str) -> Value {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

fn rules() -> Value {
    json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"] }])
}

fn subjects(random: u64) -> Value {
    json!([{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": format!("user-{}", random % 100) }])
}

fn role_ref() -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" })
}

/// A small generator (splitmix64) whose seed is printed, so that a run can be repeated.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
