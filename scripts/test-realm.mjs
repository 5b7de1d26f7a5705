/**
 * `npm run test:realm`: runs the tests of token exchange with the real realm provider, the steps of docs/keycloak.md,
 * and nine MCP clients through the gateway in front of it. `-- tokens` runs only the tests. Needs Java 17, Python 3.10
 * and either a path to the unpacked distribution (REALM_HOME) or Maven, which fetches it. Everything runs on the
 * loopback interface and is stopped at the end.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { browserEnvironment, CLIENTS, installClients, runClient } from "./realm/clients.mjs";
import { guideRunner } from "./realm/guide.mjs";
import { bin, installIfMissing, root, step } from "./steps.mjs";

const VERSION = process.env.REALM_VERSION ?? "26.4.7";
const ALICE = { username: "alice", password: "alice-password" };

installIfMissing();
const scratch = mkdtempSync(join(tmpdir(), "realm-test-"));
const build = `build-realm-${process.pid}`;
let server;
try {
  const home = process.env.REALM_HOME ?? fetchDistribution();
  step("compile", bin("tsc"), ["-p", ".", "--outDir", build, "--noCheck", "--incremental", "false"]);
  process.env.REALM_HOME = home;
  step("tokens", process.execPath, ["--test", join(build, "test/scenario/realm-tokens.test.js")]);
  if (process.argv[2] !== "tokens") {
    installClients();
    const { startRealmServer } = await import(
      pathToFileURL(join(root, build, "test/support/identity/realm-server.js")).href
    );
    server = await startRealmServer();
    const { url, adminPassword: ADMIN_PASSWORD } = server;
    const environment = { REALM_SERVER: url, ADMIN_PASSWORD, ALICE_PASSWORD: ALICE.password };
    await run(url, guideRunner({ home, scratch, environment }));
    console.log("── all steps of the guide work");
  }
} finally {
  await server?.close();
  rmSync(join(root, build), { recursive: true, force: true });
  rmSync(scratch, { recursive: true, force: true });
}

async function run(realmServer, guide) {
  const support = (name) => import(pathToFileURL(join(root, build, "test/support/identity", `${name}.js`)).href);
  const { logIn } = await support("mcp-login");
  const { DEMO_TARGET, initialize, startProtectedGateway } = await support("protected-gateway");
  const issuer = `${realmServer}/realms/mcp`;
  const configuration = (metadata) => (base) =>
    `
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      mode: strict
      issuer: ${issuer}
      audiences: [gateway]
      provider: { idp_realm: {} }
      resourceMetadata: { resource: ${base}/mcp, bearerMethodsSupported: [header]${metadata} }
    authorization:
      rules: ['"mcp-user" in jwt.realm_access.roles']
`;
  guide("1. Create the realm and a user");
  const facade = await startProtectedGateway(configuration(""));
  const direct = await startProtectedGateway(configuration(`, authorizationServers: [${issuer}]`));
  const attempt = (generation, gateway = facade) => logIn(generation, `${gateway.base}/mcp`, { user: ALICE });
  try {
    await refused(
      "registration with closed trusted hosts",
      attempt("1.x"),
      /Trusted Hosts/,
      facade,
      /trusted-hosts policy/,
    );
    const closed = await loginCheck(issuer);
    assert.equal(closed.registration?.ok, false, `the login check sees it too: ${JSON.stringify(closed)}`);
    guide("2. Allow client registration");
    await refused(
      "a token without audience mapper",
      attempt("1.x"),
      /./,
      facade,
      /audience is \[?.*expected one of \[gateway\]: add an audience mapper/,
    );
    guide("3. Add the audience");
    await refused(
      "a token without the role",
      attempt("1.x"),
      /./,
      facade,
      /the rule .*mcp-user.* (cannot be evaluated|is not true)/,
    );
    guide("4. Add the role");

    for (const generation of ["1.x", "2.x"]) {
      for (const [name, gateway] of [
        ["through the gateway", facade],
        ["with the realm named directly", direct],
      ]) {
        const session = await attempt(generation, gateway);
        await use(session);
        const before = session.store.tokens;
        session.store.tokens = { ...before, access_token: "expired" };
        await use(session);
        assert.notEqual(session.store.tokens.access_token, before.access_token, "refreshed");
        console.log(
          `   client ${generation} ${name}: logged in, called a tool, refreshed; iss ${session.callback.get("iss") ?? "left out"}`,
        );
        await session.client.close();
      }
    }

    await nineClients(facade, attempt);
    const old = await attempt("1.x");
    const legs = await loginCheck(issuer, old.store.tokens.access_token);
    for (const { leg, ok, message } of Object.values(legs)) {
      console.log(`   login check, ${leg}: ${message}`);
      assert.ok(ok, message);
    }
    rotateKeys(guide);
    const fresh = await attempt("2.x");
    await use(fresh);
    const statuses = [];
    for (const session of [old, fresh]) {
      const response = await facade.request("/mcp", initialize(session.store.tokens.access_token));
      await response.body?.cancel();
      statuses.push(response.status);
    }
    console.log(`   after a rotation: token of the old key ${statuses[0]}, of the new key ${statuses[1]}`);
    assert.equal(statuses[1], 200);
    await old.client.close();
    await fresh.client.close();
  } finally {
    await direct.close();
    await facade.close();
  }
}

/** One row for each client: it registers, the user logs in, and it uses a tool. */
async function nineClients({ base, gateway }, attempt) {
  const browser = join(root, build, "test/support/identity/browser.js");
  const environment = browserEnvironment(scratch, browser, ALICE);
  const url = `${base}/mcp`;
  const rows = [
    ...["1.x", "2.x"].map((generation) => [
      `TypeScript SDK ${generation}`,
      async () => {
        const session = await attempt(generation);
        await use(session);
        await session.client.close();
      },
    ]),
    ...Object.keys(CLIENTS).map((name) => [name, () => runClient(name, url, { scratch, environment })]),
  ];
  let failures = 0;
  console.log("── clients");
  for (const [name, logIn] of rows) {
    const before = gateway.log().length;
    try {
      await logIn();
      console.log(`   ✓ ${name}`);
    } catch (error) {
      failures += 1;
      const refused = gateway
        .log()
        .slice(before)
        .filter((line) => / (warn|error) |status=4\d\d/.test(line));
      console.log(`   ✗ ${name}: ${error.message}\n${refused.slice(-5).join("\n")}`);
    }
  }
  console.log(`   ${rows.length - failures} of ${rows.length} clients logged in`);
  assert.equal(failures, 0, "every client logs in with the guide alone");
}

/** The legs of `gwctl auth check`, by name. */
async function loginCheck(issuer, token) {
  const source = (name) => import(pathToFileURL(join(root, build, "src", `${name}.js`)).href);
  const { checkLogin } = await source("identity/login/login-check");
  const { openFetcher } = await source("http/client/fetcher");
  const { EgressGuard } = await source("http/egress-guard");
  const { Owner } = await source("base/owner");
  const { systemClock: clock } = await source("base/clock");
  const resourceMetadata = { resource: "http://localhost:3000/mcp" };
  const policy = { issuer, audiences: ["gateway"], provider: { idp_realm: {} }, resourceMetadata };
  const fetcher = openFetcher(clock, EgressGuard.for("configuration"));
  const legs = {};
  for await (const leg of checkLogin({ policy, fetch: fetcher.of(Owner.standalone), clock, readFile: () => "", token }))
    legs[leg.leg] = leg;
  fetcher.close();
  return legs;
}

async function use({ client }) {
  const { tools } = await client.listTools();
  assert.ok(tools.some(({ name }) => name === "echo"));
  const result = await client.callTool({ name: "echo", arguments: { message: "hello" } });
  assert.match(JSON.stringify(result.content), /hello/);
}

/** The login must fail in the client, and the gateway's log must contain the reason. */
async function refused(what, login, expected, { gateway }, logged) {
  const error = await login.then(
    () => undefined,
    (reason) => reason,
  );
  assert.ok(error, `${what} was accepted`);
  assert.match(String(error.message), expected);
  const line = gateway.log().findLast((text) => logged.test(text));
  assert.ok(line, `the log does not explain ${what}:\n${gateway.log().slice(-20).join("\n")}`);
  console.log(`   ${what} is refused: ${line.slice(0, 400)}`);
}

/** A second provider of RSA keys with a higher priority signs from now on; the old one stays valid for a while. */
function rotateKeys(guide) {
  guide.command(`REALM_ID=$(kcadm.sh get realms/mcp --fields id --format csv --noquotes)
kcadm.sh create components -r mcp -s name=rotated -s providerId=rsa-generated -s providerType=org.keycloak.keys.KeyProvider \\
  -s "parentId=$REALM_ID" -s 'config.priority=["200"]' -s 'config.enabled=["true"]' -s 'config.active=["true"]'`);
}

function fetchDistribution() {
  const artifact = `org.keycloak:keycloak-quarkus-dist:${VERSION}:zip`;
  step("fetch", "mvn", [
    "-q",
    "-B",
    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get",
    `-Dartifact=${artifact}`,
    "-Dtransitive=false",
  ]);
  const zip = join(
    homedir(),
    ".m2/repository/org/keycloak/keycloak-quarkus-dist",
    VERSION,
    `keycloak-quarkus-dist-${VERSION}.zip`,
  );
  if (!existsSync(zip)) throw new Error(`Maven did not put the distribution at ${zip}: unpack it and set REALM_HOME`);
  const target = join(scratch, "distribution");
  mkdirSync(target);
  step("unpack", "unzip", ["-q", zip, "-d", target]);
  return join(target, readdirSync(target)[0] ?? "");
}
