/**
 * TLS of listeners: several certificates chosen by server name, certificates of clients and whom they name, and the floors
 * of version and ciphers.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { certificates } from "../support/tls/certificates.ts";
import { armTrace, messagesOf } from "../support/trace.ts";

const files = {
  "root.pem": certificates.root,
  "server.pem": certificates.server.cert,
  "server.key.pem": certificates.server.key,
  "client.pem": certificates.client.cert,
  "client.key.pem": certificates.client.key,
};

const SERVER = "cert: server.pem, key: server.key.pem";
const OTHER = "cert: client.pem, key: client.key.pem";
const GET = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

function listening(tls: string, host: string, policies = ""): string {
  return `gateways: { default: { port: 0, protocol: HTTPS, tls: { ${tls} } } }
routes: [{ backends: [{ host: "${host}" }]${policies === "" ? "" : `, policies: { ${policies} }`} }]
`;
}

/** The certificate that was shown, and the status of the answer; rejects if there is none. */
function ask(gateway: TestGateway, options: ConnectionOptions = {}): Promise<{ name: string; status: number }> {
  return new Promise((resolve, reject) => {
    const socket: TLSSocket = connect({
      port: gateway.port(),
      host: "127.0.0.1",
      rejectUnauthorized: false,
      ...options,
    });
    let text = "";
    let name = "";
    socket.once("secureConnect", () => {
      name = String(socket.getPeerCertificate().subject.CN);
      socket.write(GET);
    });
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.once("error", reject);
    socket.once("close", () => {
      const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1];
      if (status === undefined) reject(new Error("no answer"));
      else resolve({ name, status: Number(status) });
    });
  });
}

async function gatewayWith(t: TestContext, tls: string, policies = ""): Promise<TestGateway> {
  const backend = await backendFor(t);
  return gatewayFor(t, listening(tls, backend.host, policies), { files });
}

const chosen: [name: string, tls: string, rows: [servername: string, shown: string][]][] = [
  [
    "by `hosts`",
    `certificates: [{ ${SERVER}, hosts: [a.test] }, { ${OTHER}, hosts: [b.test, "*.c.test"] }]`,
    [
      ["a.test", "backend.test"],
      ["b.test", "client.test"],
      ["B.TEST", "client.test"],
      ["x.y.c.test", "client.test"],
      ["c.test", "backend.test"],
      ["unknown.test", "backend.test"],
      ["", "backend.test"],
    ],
  ],
  [
    "by the names in the certificate",
    `certificates: [{ ${OTHER} }, { ${SERVER} }]`,
    [
      ["backend.test", "backend.test"],
      ["localhost", "backend.test"],
      ["unknown.test", "client.test"],
    ],
  ],
  [
    "with `cert` as the default",
    `${OTHER}, certificates: [{ ${SERVER} }]`,
    [
      ["backend.test", "backend.test"],
      ["unknown.test", "client.test"],
    ],
  ],
];
for (const [name, tls, rows] of chosen) {
  test(`one of several certificates is chosen ${name}`, async (t) => {
    const gateway = await gatewayWith(t, tls);
    for (const [servername, shown] of rows)
      assert.deepEqual(await ask(gateway, { servername }), { name: shown, status: 200 }, servername);
  });
}

test("certificates may stand in the configuration itself, and the key is never shown", async (t) => {
  const backend = await backendFor(t);
  const pem = (text: string): string => JSON.stringify(text);
  const gateway = await gatewayFor(
    t,
    listening(`cert: ${pem(certificates.server.cert)}, key: ${pem(certificates.server.key)}`, backend.host),
  );
  assert.deepEqual(await ask(gateway), { name: "backend.test", status: 200 });
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  assert.doesNotMatch(dump, /PRIVATE KEY/);
});

const CLIENT = { cert: certificates.client.cert, key: certificates.client.key };

test("a client must show a certificate that the CA signed, and CEL reads its subject", async (t) => {
  const rules = `authorization: { rules: ['source.identity == "CN=client.test"'] }`;
  const gateway = await gatewayWith(t, `${SERVER}, clientAuth: { ca: root.pem }`, rules);
  const trace = await armTrace(gateway);
  assert.equal((await ask(gateway, CLIENT)).status, 200);
  const [snapshot] = messagesOf(await trace.events, "requestSnapshot");
  assert.deepEqual(snapshot?.requestState.source, {
    ...(snapshot?.requestState.source as object),
    identity: "CN=client.test",
  });
  assert.equal((await ask(gateway, certificates.server)).status, 403);
  await assert.rejects(ask(gateway));
});

test("with `mode: optional` a client without a certificate passes, one with a bad certificate does not", async (t) => {
  const policies = `authorization: { rules: [{ deny: 'has(source.identity) && source.identity == "CN=client.test"' }] }`;
  const gateway = await gatewayWith(t, `${SERVER}, clientAuth: { ca: root.pem, mode: optional }`, policies);
  assert.equal((await ask(gateway)).status, 200);
  assert.equal((await ask(gateway, CLIENT)).status, 403);
  const strange = await gatewayWith(t, `${SERVER}, clientAuth: { ca: server.pem, mode: optional }`);
  assert.equal((await ask(strange)).status, 200);
  await assert.rejects(ask(strange, CLIENT));
});

test("a reload changes certificates, client authentication and the floor for new connections", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, listening(SERVER, backend.host), { files });
  assert.equal((await ask(gateway, { maxVersion: "TLSv1.2" })).name, "backend.test");
  const strict = `${OTHER}, minVersion: TLSv1.3, clientAuth: { ca: root.pem }`;
  assert.equal(await gateway.reload(listening(strict, backend.host)), "loaded");
  assert.equal((await ask(gateway, CLIENT)).name, "client.test");
  await assert.rejects(ask(gateway));
  await assert.rejects(ask(gateway, { ...CLIENT, maxVersion: "TLSv1.2" }));
});

test("ciphers below the floor are not spoken", async (t) => {
  const gateway = await gatewayWith(t, `${SERVER}, ciphers: ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384`);
  const old = { maxVersion: "TLSv1.2" } as const;
  assert.equal(
    (await ask(gateway, { ...old, ciphers: "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384" })).status,
    200,
  );
  await assert.rejects(ask(gateway, { ...old, ciphers: "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256" }));
});

const refused: [name: string, tls: string, message: RegExp][] = [
  ["neither cert nor certificates", "minVersion: TLSv1.3", /tls: set `cert` and `key`, or `certificates`/],
  ["a certificate without its key", "cert: server.pem", /tls: `cert` and `key` must be set together/],
  ["an empty list", "certificates: []", /tls\.certificates/],
  [
    "a key of another one",
    "certificates: [{ cert: server.pem, key: client.key.pem }]",
    /tls\.certificates\[0\].*match/,
  ],
  ["a host that is none", `certificates: [{ ${SERVER}, hosts: ["a b"] }]`, /hosts\[0\].*host name/],
  ["an unknown cipher", `${SERVER}, ciphers: NOT-A-CIPHER`, /tls\.ciphers/],
  ["an old version", `${SERVER}, minVersion: TLSv1.1`, /minVersion/],
  ["a CA file that is not there", `${SERVER}, clientAuth: { ca: none.pem }`, /clientAuth\.ca: cannot read .*none\.pem/],
  ["a CA that is none", `${SERVER}, clientAuth: { ca: server.key.pem }`, /clientAuth\.ca: the root cannot be used/],
];
for (const [name, tls, message] of refused) {
  test(`the start is refused with ${name}`, async () => {
    await assert.rejects(startGateway(listening(tls, "127.0.0.1:1"), { files }), message);
  });
}
