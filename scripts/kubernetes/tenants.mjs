/**
 * `npm run test:kubernetes -- tenants`: a table of attempts. A tenant may do everything in its own namespace and nothing in
 * another's; no document of it may read a Secret there, reach a Service or Backend there, or attach to Gateways and routes
 * there. Every attempt is made against the real API server; after all of them the other namespace must serve as before,
 * and nothing of its Secret may have left.
 */
import { request as httpsRequest } from "node:https";
import {
  addressOf,
  apply,
  ask,
  controllerCertificate,
  createFindings,
  freshNamespace,
  openApi,
  pathOf,
  run,
  serviceHere,
  startController,
  until,
} from "./cluster.mjs";

const OWN = "gateway-tenant";
const THEIRS = "gateway-victim";
const TENANT = "tenant@example.com";
const PORT = 18_082;
const SECRET = "only-of-the-victim-5f1c";
const GATEWAY_GROUP = "gateway.networking.k8s.io";
const POLICY_GROUP = "policy.gateway.internal";

export async function tenants(cluster) {
  const findings = createFindings();
  startController(cluster, "ignore");
  const api = await openApi(cluster);
  for (const namespace of [OWN, THEIRS]) await freshNamespace(api, namespace);
  await giveRights(api);
  const victim = await serviceHere(cluster, api, THEIRS, "web");
  const own = await serviceHere(cluster, api, OWN, "web");
  for (const object of victimObjects()) await apply(api, object);
  for (const object of ownObjects()) await applyAs(api, object);
  const theirAddress = await addressOf(api, `${THEIRS}/edge`);
  const ownAddress = await addressOf(api, `${OWN}/edge`);
  await until("the victim's route", async () => (await ask(theirAddress, PORT, "/"))?.status === 200);

  for (const [what, attempt] of Object.entries(attempts())) await tryOne(api, findings, what, attempt);
  await tryStream(cluster, api, findings);

  // Every attempt has its route: what they answer must not come from there.
  const bodies = [];
  for (const [what, { path }] of Object.entries(attempts()))
    if (path !== undefined) bodies.push([what, await ask(ownAddress, PORT, path)]);
  for (const [what, answer] of bodies)
    findings.tell(
      `${what}: its requests`,
      !answer?.body.includes(`${THEIRS}/web`) && !answer?.body.includes(SECRET),
      String(answer?.status ?? "no answer"),
    );
  findings.tell("nothing of the tenant arrived at the victim's Service", !victim.received.join().includes("attempt-"));
  findings.tell("the victim's Secret arrived nowhere", !own.received.join().includes(SECRET));
  const after = await ask(theirAddress, PORT, "/");
  findings.tell(
    "the victim's route serves as before",
    after?.status === 200 && after.headers["x-hijacked"] === undefined && after.headers["x-of"] === "victim",
  );
  const all = await statuses(api);
  findings.tell("no status in the tenant's namespace shows the Secret", !all.includes(SECRET));
  return findings.exitCode();
}

/** All rights in one namespace, as an administrator of it has. */
async function giveRights(api) {
  await apply(api, {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "Role",
    metadata: { name: "tenant", namespace: OWN },
    rules: [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }],
  });
  await apply(api, {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "RoleBinding",
    metadata: { name: "tenant", namespace: OWN },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "tenant" },
    subjects: [{ kind: "User", name: TENANT, apiGroup: "rbac.authorization.k8s.io" }],
  });
}

const gatewayOf = (namespace, name = "edge", more = {}) => ({
  apiVersion: `${GATEWAY_GROUP}/v1`,
  kind: "Gateway",
  metadata: { name, namespace },
  spec: { gatewayClassName: "gateway", listeners: [{ name: "http", port: PORT, protocol: "HTTP", ...more }] },
});
const routeOf = (name, rule, spec = {}, namespace = OWN) => ({
  apiVersion: `${GATEWAY_GROUP}/v1`,
  kind: "HTTPRoute",
  metadata: { name, namespace },
  spec: { parentRefs: [{ name: "edge" }], rules: [rule], ...spec },
});
const policyOf = (name, spec) => ({
  apiVersion: `${POLICY_GROUP}/v1alpha1`,
  kind: "GatewayPolicy",
  metadata: { name, namespace: OWN },
  spec,
});
const backendOf = (name, spec, namespace = OWN) => ({
  apiVersion: `${POLICY_GROUP}/v1alpha1`,
  kind: "Backend",
  metadata: { name, namespace },
  spec,
});
const grantOf = (namespace, name = "grant") => ({
  apiVersion: `${GATEWAY_GROUP}/v1beta1`,
  kind: "ReferenceGrant",
  metadata: { name, namespace },
  spec: {
    from: ["HTTPRoute", "Gateway"]
      .map((kind) => ({ group: GATEWAY_GROUP, kind, namespace: OWN }))
      .concat(["GatewayPolicy", "Backend"].map((kind) => ({ group: POLICY_GROUP, kind, namespace: OWN }))),
    to: [
      { group: "", kind: "Secret" },
      { group: "", kind: "Service" },
      { group: POLICY_GROUP, kind: "Backend" },
    ],
  },
});
const at = (path) => [{ path: { type: "PathPrefix", value: path } }];
const toService = (name = "web") => [{ name, port: 80 }];
const theirSecret = { secretRef: { name: "keys", namespace: THEIRS, key: "token" } };
const hijack = {
  headerModifiers: { response: { set: { "x-hijacked": "yes" } } },
};

function victimObjects() {
  const set = [{ name: "x-of", value: "victim" }];
  return [
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "keys", namespace: THEIRS },
      stringData: { token: SECRET },
    },
    gatewayOf(THEIRS),
    routeOf(
      "web",
      {
        filters: [{ type: "ResponseHeaderModifier", responseHeaderModifier: { set } }],
        backendRefs: toService(),
      },
      {},
      THEIRS,
    ),
    backendOf("models", { ai: { provider: { demo: {} } } }, THEIRS),
  ];
}

function ownObjects() {
  return [gatewayOf(OWN), routeOf("web", { matches: at("/own"), backendRefs: toService() })];
}

/**
 * What is applied, whether the API server refuses it (403) or the gateway does (a condition that is False), and the path
 * of the tenant's own Gateway under which it would show.
 */
function attempts() {
  return {
    "a policy with a Secret of another namespace": {
      objects: [
        routeOf("attempt-a", { matches: at("/attempt-a"), backendRefs: toService() }),
        policyOf("attempt-a", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: "attempt-a" }],
          traffic: { backendAuth: { key: theirSecret } },
        }),
      ],
      refused: "Accepted",
      path: "/attempt-a",
    },
    "a Backend with a Secret of another namespace": {
      objects: [
        backendOf("attempt-b", { ai: { provider: { openAI: {} }, auth: { key: theirSecret } } }),
        routeOf("attempt-b", { matches: at("/attempt-b"), backendRefs: [ownBackend("attempt-b")] }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-b",
    },
    "a Backend that sends a Secret of another namespace as a header": {
      objects: [
        backendOf("attempt-c", {
          mcp: { targets: [{ name: "a", mcp: { url: "http://example.com/", headers: { "x-key": theirSecret } } }] },
        }),
        routeOf("attempt-c", { matches: at("/attempt-c"), backendRefs: [ownBackend("attempt-c")] }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-c",
    },
    "a listener with a Secret of another namespace": {
      objects: [
        gatewayOf(OWN, "attempt-d", {
          port: 18_443,
          protocol: "HTTPS",
          tls: { certificateRefs: [{ name: "keys", namespace: THEIRS }] },
        }),
      ],
      refused: "ResolvedRefs",
    },
    "a route to a Service of another namespace": {
      objects: [
        routeOf("attempt-e", {
          matches: at("/attempt-e"),
          backendRefs: [{ name: "web", namespace: THEIRS, port: 80 }],
        }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-e",
    },
    "a route to a Backend of another namespace": {
      objects: [
        routeOf("attempt-f", {
          matches: at("/attempt-f"),
          backendRefs: [{ ...ownBackend("models"), namespace: THEIRS }],
        }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-f",
    },
    "a mirror to a Service of another namespace": {
      objects: [
        routeOf("attempt-g", {
          matches: at("/attempt-g"),
          filters: [
            {
              type: "RequestMirror",
              requestMirror: { backendRef: { name: "web", namespace: THEIRS, port: 80 } },
            },
          ],
          backendRefs: toService(),
        }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-g",
    },
    "a route on a Gateway of another namespace": {
      objects: [
        routeOf(
          "attempt-h",
          { matches: at("/"), backendRefs: toService() },
          { parentRefs: [{ name: "edge", namespace: THEIRS }] },
        ),
      ],
      refused: "Accepted",
    },
    "a policy on a route of another namespace": {
      objects: [
        policyOf("attempt-i", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: "web", namespace: THEIRS }],
          traffic: hijack,
        }),
      ],
      refused: "Accepted",
    },
    "a policy on a Gateway of another namespace": {
      objects: [
        policyOf("attempt-j", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "Gateway", name: "edge", namespace: THEIRS }],
          traffic: hijack,
        }),
      ],
      refused: "Accepted",
    },
    "a policy on a name with a namespace in it": {
      objects: [
        policyOf("attempt-k", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: `${THEIRS}/web` }],
          traffic: hijack,
        }),
      ],
      refused: "Attached",
    },
    "a grant in the own namespace, and the Secret again": {
      objects: [
        grantOf(OWN),
        routeOf("attempt-l", { matches: at("/attempt-l"), backendRefs: toService() }),
        policyOf("attempt-l", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: "attempt-l" }],
          traffic: { backendAuth: { key: theirSecret } },
        }),
      ],
      refused: "Accepted",
      path: "/attempt-l",
    },
    "a grant in the other namespace": { objects: [grantOf(THEIRS)], refused: 403 },
    "a policy in the other namespace": {
      objects: [{ ...policyOf("attempt-m", { traffic: hijack }), metadata: { name: "attempt-m", namespace: THEIRS } }],
      refused: 403,
    },
    "a Service that is another name for one of the other namespace": {
      objects: [
        {
          apiVersion: "v1",
          kind: "Service",
          metadata: { name: "attempt-n", namespace: OWN },
          spec: { type: "ExternalName", externalName: `web.${THEIRS}.svc.cluster.local`, ports: [{ port: 80 }] },
        },
        routeOf("attempt-n", { matches: at("/attempt-n"), backendRefs: toService("attempt-n") }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-n",
    },
    "endpoints with the label of the other namespace's Service": {
      objects: [
        {
          apiVersion: "discovery.k8s.io/v1",
          kind: "EndpointSlice",
          metadata: { name: "attempt-o", namespace: OWN, labels: { "kubernetes.io/service-name": `${THEIRS}/web` } },
          addressType: "IPv4",
          ports: [{ port: 1, protocol: "TCP" }],
          endpoints: [{ addresses: ["10.0.0.1"] }],
        },
      ],
      refused: 422,
    },
    "the token of the data plane's ServiceAccount": {
      objects: [
        routeOf("attempt-p", { matches: at("/attempt-p"), backendRefs: toService() }),
        policyOf("attempt-p", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: "attempt-p" }],
          traffic: { backendAuth: { key: { file: "/var/run/secrets/gateway/token" } } },
        }),
      ],
      refused: "Accepted",
      path: "/attempt-p",
    },
    "the admin interface of the data plane": {
      objects: [
        backendOf("attempt-q", { host: "127.0.0.1:15000" }),
        routeOf("attempt-q", { matches: at("/attempt-q"), backendRefs: [ownBackend("attempt-q")] }),
      ],
      // Refused for each connection, because names change their addresses.
      refused: undefined,
      path: "/attempt-q",
      status: 502,
    },
    "the machine's metadata service": {
      objects: [
        backendOf("attempt-r", { host: "169.254.169.254:80" }),
        routeOf("attempt-r", { matches: at("/attempt-r"), backendRefs: [ownBackend("attempt-r")] }),
      ],
      refused: undefined,
      path: "/attempt-r",
      status: 502,
    },
    "a process": {
      objects: [
        backendOf("attempt-s", { mcp: { targets: [{ name: "a", stdio: { cmd: "sh" } }] } }),
        routeOf("attempt-s", { matches: at("/attempt-s"), backendRefs: [ownBackend("attempt-s")] }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-s",
    },
    "a unix socket": {
      objects: [
        backendOf("attempt-t", { host: "unix:/var/lib/gateway/x.sock" }),
        routeOf("attempt-t", { matches: at("/attempt-t"), backendRefs: [ownBackend("attempt-t")] }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-t",
    },
  };
}

function ownBackend(name) {
  return { group: POLICY_GROUP, kind: "Backend", name };
}

async function tryOne(api, findings, what, { objects, refused }) {
  let answer;
  for (const object of objects) answer = await api.apply(object, TENANT);
  // An API server that does not take it at all is as good.
  if (answer.status === 403 || answer.status === 422 || answer.status === 400) {
    findings.tell(what, refused !== undefined, `${answer.status} of the API server`);
    return;
  }
  if (answer.status >= 300 || typeof refused === "number") {
    findings.tell(what, false, `${answer.status} of the API server`);
    return;
  }
  if (refused === undefined) return;
  const last = objects.at(-1);
  let condition;
  try {
    await until(
      `a status of ${last.metadata.name}`,
      async () => {
        const { status } = await api.get(`${pathOf(last)}/${last.metadata.name}`);
        condition = conditionsOf(status).find(({ type }) => type === refused);
        return condition !== undefined;
      },
      20_000,
    );
  } catch {
    // A Gateway that does not know the route says nothing: then it serves nothing of it, which is looked at below.
  }
  findings.tell(what, condition?.status === "False", condition ? `${refused} False, ${condition.reason}` : "no status");
}

function conditionsOf(status = {}) {
  const nested = [...(status.parents ?? []), ...(status.ancestors ?? []), ...(status.listeners ?? [])];
  return [...nested.flatMap(({ conditions }) => conditions), ...(nested.length > 0 ? [] : (status.conditions ?? []))];
}

/** The snapshot of a Gateway has its Secrets: only its own data plane may have it. */
async function tryStream(_cluster, api, findings) {
  const certificate = await controllerCertificate(api, `${THEIRS}/edge`);
  const account = {
    apiVersion: "v1",
    kind: "ServiceAccount",
    metadata: { name: "other", namespace: OWN },
  };
  await applyAs(api, account);
  const token = (name, audience) =>
    run(
      "kubectl",
      ["create", "token", name, "-n", OWN, ...(audience ? [`--audience=${audience}`] : [])],
      "pipe",
    ).trim();
  const rows = [
    ["without a token", undefined, 401],
    ["with a token for another audience", token("edge-gateway"), 401],
    ["as an account of the tenant", token("other", "gateway-controller"), 403],
    ["as the data plane of the tenant's Gateway of the same name", token("edge-gateway", "gateway-controller"), 403],
  ];
  for (const [what, bearer, wanted] of rows) {
    const status = await streamStatus(certificate, bearer, `/v1/snapshots/${THEIRS}/edge/x`);
    findings.tell(`the victim's snapshot ${what}`, status === wanted, String(status));
  }
  const own = await streamStatus(certificate, rows[3][1], `/v1/snapshots/${OWN}/edge/x`);
  findings.tell("the tenant's own data plane has its own", own === 200, String(own));
}

function streamStatus(ca, token, path) {
  return new Promise((resolve, reject) => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const request = httpsRequest(new URL(path, process.env.GATEWAY_CONTROLLER_URL), { ca, headers }, (response) => {
      resolve(response.statusCode);
      response.destroy();
    });
    request.on("error", reject);
    request.end();
  });
}

async function applyAs(api, object) {
  const { status, value } = await api.apply(object, TENANT);
  if (status >= 300) throw new Error(`${object.kind} ${object.metadata.name}: ${status} ${value?.message ?? ""}`);
}

async function statuses(api) {
  const texts = [];
  for (const plural of ["gateways", "httproutes"])
    texts.push(await api.get(`/apis/${GATEWAY_GROUP}/v1/namespaces/${OWN}/${plural}`));
  for (const plural of ["gatewaypolicies", "backends"])
    texts.push(await api.get(`/apis/${POLICY_GROUP}/v1alpha1/namespaces/${OWN}/${plural}`));
  return JSON.stringify(texts);
}
