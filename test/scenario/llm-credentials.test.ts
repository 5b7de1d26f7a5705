/**
 * Credentials that the gateway obtains itself: from stand-in token servers on loopback, through a real gateway.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let upstream: TestUpstream;
let tokens: Server;
let gateway: TestGateway;
/** How the token server answers now. */
let answer: (req: IncomingMessage, res: ServerResponse) => void;
const asked: string[] = [];

const json = (res: ServerResponse, value: unknown, status = 200): void => {
  res.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
};

before(async () => {
  upstream = await startUpstream();
  tokens = createServer((req, res) => {
    asked.push(`${req.method} ${req.url}`);
    req.resume();
    req.on("end", () => answer(req, res));
  });
  await new Promise<void>((resolve) => tokens.listen(0, "127.0.0.1", resolve));
  const address = `127.0.0.1:${(tokens.address() as AddressInfo).port}`;
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const account = {
    type: "service_account",
    client_email: "gateway@project.iam",
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
    token_uri: `http://${address}/token`,
  };
  const vertex = (auth: string) =>
    `{ provider: { vertex: { projectId: p } }, auth: { google: ${auth} }, hostOverride: "${upstream.host}" }`;
  const bedrock = (auth: string) =>
    `{ provider: { bedrock: { region: eu-west-1 } }, auth: { aws: ${auth} }, hostOverride: "${upstream.host}" }`;
  gateway = await startGateway(
    `
gateways: { key: { port: 0 }, metadata: { port: 0 }, instance: { port: 0 }, profile: { port: 0 }, spare: { port: 0 } }
routes:
  - { name: key, gateways: key, backends: [{ ai: ${vertex("{ keyFile: account.json }")} }] }
  - { name: metadata, gateways: metadata, backends: [{ ai: ${vertex("{}")} }] }
  - { name: instance, gateways: instance, backends: [{ ai: ${bedrock("{}")} }] }
  - { name: profile, gateways: profile, backends: [{ ai: ${bedrock("{ profile: work }")} }] }
  - name: spare
    gateways: spare
    backends:
      - ai:
          groups:
            - providers: [${vertex("{ keyFile: other.json }")}]
            - providers: [{ provider: { openAI: {} }, auth: { key: spare-key }, hostOverride: "${upstream.host}" }]
`,
    {
      files: { "account.json": JSON.stringify(account), "other.json": JSON.stringify(account) },
      environment: {
        GCE_METADATA_HOST: address,
        AWS_EC2_METADATA_SERVICE_ENDPOINT: `http://${address}`,
        AWS_SHARED_CREDENTIALS_FILE: "/nonexistent/credentials",
      },
    },
  );
});
after(async () => {
  await gateway?.close();
  await upstream.close();
  tokens.close();
  tokens.closeAllConnections();
});

const ask = (listener: string) =>
  fetch(`${gateway.url(listener)}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer of-the-client" },
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }] }),
  });

test("a token server that is down is a 503 with a code, and the provider is not asked", async () => {
  answer = (_req, res) => json(res, { error: "invalid_grant" }, 400);
  const calls = upstream.requests.length;
  const response = await ask("key");
  assert.equal(response.status, 503);
  assert.ok(Number(response.headers.get("retry-after")) >= 1);
  const body = (await response.json()) as { error: { code: string; message: string } };
  assert.equal(body.error.code, "provider_credential_unavailable");
  assert.ok(!body.error.message.includes("invalid_grant"));
  assert.match(await gateway.logged("cannot get the provider's credential"), /invalid_grant/);
  assert.equal(upstream.requests.length, calls);
});

test("another target with a credential of its own answers instead", async () => {
  answer = (_req, res) => json(res, {}, 500);
  assert.equal((await ask("spare")).status, 200);
  assert.equal(upstream.last().headers.authorization, "Bearer spare-key");
});

test("many calls at once are one question to the metadata server, and the client's key goes nowhere", async () => {
  answer = (req, res) =>
    req.headers["metadata-flavor"] === "Google"
      ? json(res, { access_token: "machine-token", expires_in: 3600 })
      : json(res, {}, 403);
  const from = asked.length;
  const statuses = await Promise.all(Array.from({ length: 5 }, async () => (await ask("metadata")).status));
  assert.deepEqual(statuses, [200, 200, 200, 200, 200]);
  assert.equal(asked.length - from, 1);
  assert.equal(upstream.last().headers.authorization, "Bearer machine-token");
  assert.equal((await ask("metadata")).status, 200);
  assert.equal(asked.length - from, 1);
});

test("a list of models is asked for with the same token", async () => {
  const response = await fetch(`${gateway.url("metadata")}/v1/models`);
  assert.equal(response.status, 200);
  assert.equal(upstream.last().headers.authorization, "Bearer machine-token");
});

test("the role of an instance signs the call", async () => {
  const keys = { AccessKeyId: "ASIAROLE", SecretAccessKey: "s", Token: "session", Expiration: "2999-01-01T00:00:00Z" };
  answer = (req, res) => {
    if (req.url?.endsWith("/api/token")) res.end("imds");
    else if (req.headers["x-aws-ec2-metadata-token"] !== "imds") res.writeHead(401).end();
    else if (req.url?.endsWith("/security-credentials/")) res.end("role");
    else json(res, keys);
  };
  assert.equal((await ask("instance")).status, 200);
  const { headers } = upstream.last();
  assert.match(String(headers.authorization), /^AWS4-HMAC-SHA256 Credential=ASIAROLE\/\d+\/eu-west-1\/bedrock\//);
  assert.equal(headers["x-amz-security-token"], "session");
});

test("a profile that does not exist names what is supported in the log, and is a 503", async () => {
  assert.equal((await ask("profile")).status, 503);
  assert.match(await gateway.logged("role_arn"), /work/);
});

test("a redirect of a token server is not followed", async () => {
  const reloaded = await startGateway(
    `
gateways: { one: { port: 0 } }
routes: [{ gateways: one, backends: [{ ai: { provider: { vertex: { projectId: p } }, auth: { google: {} }, hostOverride: "${upstream.host}" } }] }]
`,
    { environment: { GCE_METADATA_HOST: `127.0.0.1:${(tokens.address() as AddressInfo).port}` } },
  );
  try {
    answer = (_req, res) => res.writeHead(302, { location: "/stolen" }).end();
    const response = await fetch(`${reloaded.url()}/v1/chat/completions`, {
      method: "POST",
      body: '{"model":"m","messages":[]}',
    });
    assert.equal(response.status, 503);
    assert.ok(!asked.some((line) => line.endsWith("/stolen")));
  } finally {
    await reloaded.close();
  }
});

test("a key file that is no key refuses the start", async () => {
  await assert.rejects(
    startGateway(
      "gateways: { one: { port: 0 } }\nroutes: [{ backends: [{ ai: { provider: { vertex: { projectId: p } }, auth: { google: { keyFile: bad.json } } } }] }]\n",
      { files: { "bad.json": JSON.stringify({ type: "external_account" }) } },
    ),
  );
});
