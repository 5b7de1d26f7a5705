/**
 * `backendAuth` with the gateway's own credentials at AWS, Google Cloud, and Azure, from stand-in token servers on
 * loopback, for backends that are no LLM providers.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { type TestContext, test } from "node:test";
import { awsSignature, expectedSignature, type ReceivedRequest } from "../support/aws-signature.ts";
import { startBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";

const SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const KEYS = `accessKeyId: AKIDEXAMPLE, secretAccessKey: "${SECRET}"`;

async function recordingBackend(t: TestContext, status: () => number = () => 200) {
  const received: ReceivedRequest[] = [];
  const backend = await startBackend((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const { method = "", url = "", headers } = req;
      received.push({ method, url, headers, body: Buffer.concat(chunks).toString() });
      res.writeHead(status()).end("ok");
    });
  });
  t.after(() => backend.close());
  return { host: backend.host, received };
}

async function serving(t: TestContext, yaml: string, options: Parameters<typeof startGateway>[1] = {}) {
  const gateway = await startGateway(`gateways: { default: { port: 0 } }\nroutes:\n${yaml}`, options);
  t.after(() => gateway.close());
  return gateway;
}

test("the signature of the support code is the documented one", () => {
  const documented = awsSignature({
    method: "GET",
    path: "/",
    query: "Action=ListUsers&Version=2010-05-08",
    headers: [
      ["content-type", "application/x-www-form-urlencoded; charset=utf-8"],
      ["host", "iam.amazonaws.com"],
      ["x-amz-date", "20150830T123600Z"],
    ],
    body: "",
    secret: SECRET,
    date: "20150830T123600Z",
    region: "us-east-1",
    service: "iam",
  });
  assert.equal(documented, "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
});

test("requests are signed in their final form, after rewrites, and without the client's credentials", async (t) => {
  const { host, received } = await recordingBackend(t);
  const gateway = await serving(
    t,
    `
  - backends: [{ host: "${host}" }]
    policies:
      backendAuth: { aws: { region: us-east-1, service: execute-api, ${KEYS} } }
      urlRewrite: { authority: api.example.com, path: { prefix: "/prod/a:b" } }
      requestHeaderModifier: { set: { x-stage: prod } }
    matches: [{ path: { pathPrefix: /shop } }]
`,
  );
  const send = (path: string, init: RequestInit = {}) =>
    fetch(`${gateway.url()}${path}`, {
      ...init,
      headers: { authorization: "Bearer client-token", "x-amz-security-token": "client", ...init.headers },
    });
  assert.equal((await send("/shop/items?b=2&a=1&a=0")).status, 200);
  const body = JSON.stringify({ name: "é" });
  const post = { method: "POST", body, headers: { "content-type": "application/json" } };
  assert.equal((await send("/shop/items", post)).status, 200);
  for (const request of received) {
    const { authorization = "" } = request.headers;
    assert.match(
      authorization,
      /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/us-east-1\/execute-api\/aws4_request, /,
    );
    assert.match(authorization, /SignedHeaders=(?:content-type;)?host;x-amz-content-sha256;x-amz-date,/);
    assert.equal(/Signature=(\w+)/.exec(authorization)?.[1], expectedSignature(request, SECRET, "execute-api"));
    assert.equal(request.headers.host, "api.example.com");
    assert.equal(request.headers["x-amz-security-token"], undefined);
  }
  assert.deepEqual(
    received.map(({ method, url }) => [method, url.split("?")[0]]),
    [
      ["GET", "/prod/a:b/items"],
      ["POST", "/prod/a:b/items"],
    ],
  );
});

test("a retry at another backend does not carry the signature, and each attempt is signed anew", async (t) => {
  const first = await recordingBackend(t, () => 503);
  const second = await recordingBackend(t);
  const gateway = await serving(
    t,
    `
  - backends:
      - { host: "${first.host}", policies: { backendAuth: { aws: { region: us-east-1, service: s3, ${KEYS} } } } }
      - { host: "${second.host}", weight: 0 }
    policies: { retry: { attempts: 2, codes: [503] } }
`,
  );
  await fetch(gateway.url());
  assert.equal(first.received.length + second.received.length, 3);
  assert.ok(first.received.every(({ headers }) => headers.authorization?.startsWith("AWS4-HMAC-SHA256 ")));
  assert.ok(second.received.every(({ headers }) => headers.authorization === undefined));
});

test("a body that is too large to be signed is rejected, and nothing is sent", async (t) => {
  const { host, received } = await recordingBackend(t);
  const gateway = await serving(
    t,
    `  - { backends: [{ host: "${host}" }], policies: { backendAuth: { aws: { region: us-east-1, service: s3, ${KEYS} } } } }\n`,
  );
  const response = await fetch(gateway.url(), { method: "POST", body: Buffer.alloc(8 * 1024 * 1024 + 1) });
  assert.equal(response.status, 413);
  assert.deepEqual(received, []);
});

test("tokens of Google and Entra ID are sent, and without one the backend is not called", async (t) => {
  const { host, received } = await recordingBackend(t);
  const asked: string[] = [];
  let isDown = false;
  const tokens = await startBackend((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      asked.push(`${req.url} ${new URLSearchParams(Buffer.concat(chunks).toString()).get("scope") ?? ""}`.trim());
      if (isDown) res.writeHead(500).end();
      else res.end(JSON.stringify({ access_token: `token-of${req.url?.replaceAll("/", "-")}`, expires_in: 3600 }));
    });
  });
  t.after(() => tokens.close());
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const account = {
    type: "service_account",
    client_email: "gateway@project.iam",
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
    token_uri: `http://${tokens.host}/google`,
  };
  const azure = "tenantId: tenant, clientId: client, clientSecret: application-secret";
  const gateway = await serving(
    t,
    `
  - { name: google, matches: [{ path: { exact: /google } }], backends: [{ host: "${host}" }], policies: { backendAuth: { google: { keyFile: account.json } } } }
  - { name: azure, matches: [{ path: { exact: /azure } }], backends: [{ host: "${host}" }], policies: { backendAuth: { azure: { ${azure}, resource: "https://management.azure.com/" } } } }
  - { name: down, matches: [{ path: { exact: /down } }], backends: [{ host: "${host}" }], policies: { backendAuth: { azure: { ${azure} } } } }
`,
    {
      files: { "account.json": JSON.stringify(account) },
      environment: { AZURE_AUTHORITY_HOST: `http://${tokens.host}` },
    },
  );
  const get = (path: string) => fetch(`${gateway.url()}${path}`, { headers: { authorization: "Bearer client-token" } });
  for (const path of ["/google", "/google", "/azure"]) assert.equal((await get(path)).status, 200);
  assert.deepEqual(
    received.map(({ url, headers }) => [url, headers.authorization]),
    [
      ["/google", "Bearer token-of-google"],
      ["/google", "Bearer token-of-google"],
      ["/azure", "Bearer token-of-tenant-oauth2-v2.0-token"],
    ],
  );
  assert.deepEqual(asked, ["/google", "/tenant/oauth2/v2.0/token https://management.azure.com/.default"]);

  isDown = true;
  const response = await get("/down");
  assert.equal(response.status, 503);
  assert.ok(Number(response.headers.get("retry-after")) >= 1);
  assert.ok(!received.some(({ url }) => url === "/down"));
});
