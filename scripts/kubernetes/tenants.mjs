/**
 * `npm run test:kubernetes -- tenants`: checks that a tenant with all permissions in one namespace cannot read
 * Secrets of another namespace, reach its Services or Backends, or attach to its Gateways and routes. Every attempt
 * is made against the real API server.
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
import { attempts } from "./tenant-attempts.mjs";
import {
  GATEWAY_GROUP,
  OWN,
  ownObjects,
  POLICY_GROUP,
  PORT,
  SECRET,
  TENANT,
  THEIRS,
  victimObjects,
} from "./tenant-documents.mjs";

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

  // Every attempt has its own route, which must not serve the target's response.
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
        return condition !== undefined && condition.status !== "Unknown";
      },
      20_000,
    );
  } catch {
    // A Gateway that ignores the route sets no condition; the check below confirms that it serves nothing of it.
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
