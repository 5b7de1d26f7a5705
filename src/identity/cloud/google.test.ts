import assert from "node:assert/strict";
import { createVerify, generateKeyPairSync } from "node:crypto";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { FetchRequest, FetchResponse } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import { googleKeySource, googleMetadataSource } from "./google.ts";

const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const pem = privateKey.export({ type: "pkcs8", format: "pem" });
const shortPem = generateKeyPairSync("rsa", { modulusLength: 1024 }).privateKey.export({
  type: "pkcs8",
  format: "pem",
});
const account = { type: "service_account", client_email: "me@p.iam", private_key: pem, private_key_id: "k1" };
const token = JSON.stringify({ access_token: "ya29.x", expires_in: 3599, token_type: "Bearer" });

function asking(body: string, status = 200) {
  const requests: FetchRequest[] = [];
  const clock = fakeClock();
  const fetch = (request: FetchRequest): Promise<FetchResponse> => {
    requests.push(request);
    return Promise.resolve({ status, headers: new HeaderList(), body: Buffer.from(body) });
  };
  return { requests, options: { clock, fetch }, clock };
}

test("a service account's key signs an assertion that is exchanged for a token", async () => {
  const { requests, options, clock } = asking(token);
  const lease = await googleKeySource(JSON.stringify(account), options)();
  assert.deepEqual(lease, { value: "ya29.x", expiresAtMs: clock.now() + 3_599_000 });
  const [request] = requests;
  assert.equal(request?.url, "https://oauth2.googleapis.com/token");
  const form = new URLSearchParams(request?.body?.toString());
  assert.equal(form.get("grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer");
  const [head = "", claims = "", signature = ""] = (form.get("assertion") ?? "").split(".");
  const read = (part: string) => JSON.parse(Buffer.from(part, "base64url").toString());
  const nowSeconds = clock.now() / 1000;
  assert.deepEqual(read(head), { alg: "RS256", typ: "JWT", kid: "k1" });
  assert.deepEqual(read(claims), {
    iss: "me@p.iam",
    scope: "https://www.googleapis.com/auth/cloud-platform",
    aud: "https://oauth2.googleapis.com/token",
    iat: nowSeconds,
    exp: nowSeconds + 3600,
  });
  const verify = createVerify("RSA-SHA256").update(`${head}.${claims}`);
  assert.ok(verify.verify(publicKey, signature, "base64url"));
});

test("what gcloud leaves for a person is exchanged by its refresh token", async () => {
  const { requests, options } = asking(token);
  const file = { type: "authorized_user", client_id: "c", client_secret: "s", refresh_token: "r" };
  assert.equal((await googleKeySource(JSON.stringify(file), options)()).value, "ya29.x");
  assert.equal(new URLSearchParams(requests[0]?.body?.toString()).get("refresh_token"), "r");
});

test("the metadata server is called with its header, at its default name or the configured one", async () => {
  const { requests, options } = asking(token);
  await googleMetadataSource(undefined, options)();
  await googleMetadataSource("127.0.0.1:1", options)();
  assert.equal(requests[0]?.headers?.["metadata-flavor"], "Google");
  assert.match(requests[0]?.url ?? "", /^http:\/\/metadata\.google\.internal\/computeMetadata\/v1\//);
  assert.match(requests[1]?.url ?? "", /^http:\/\/127\.0\.0\.1:1\//);
});

const wrongFiles: [name: string, text: string, message: RegExp][] = [
  ["no JSON", "nothing", /not a JSON object/],
  ["another type", JSON.stringify({ type: "external_account" }), /external_account.*supported are service_account/],
  ["no address", JSON.stringify({ ...account, client_email: "" }), /client_email/],
  ["no key", JSON.stringify({ ...account, private_key: "secret-words" }), /not an RSA key/],
  ["a short key", JSON.stringify({ ...account, private_key: shortPem }), /with at least 2048 bits/],
  [
    "an unencrypted token server",
    JSON.stringify({ ...account, token_uri: "http://evil.example/" }),
    /must be an https/,
  ],
];
for (const [name, text, message] of wrongFiles) {
  test(`a key file with ${name} is refused, and not quoted`, () =>
    assert.throws(
      () => googleKeySource(text, asking(token).options),
      (error: Error) => message.test(error.message) && !error.message.includes("secret-words"),
    ));
}

const wrongAnswers: [body: string, status: number, message: RegExp][] = [
  [JSON.stringify({ error: "invalid_grant", error_description: "secret" }), 400, /status 400 \(invalid_grant\)$/],
  [JSON.stringify({ error: "Not A Word <x>" }), 401, /status 401$/],
  ["", 302, /status 302$/],
  [JSON.stringify({ access_token: "a\r\nx: y", expires_in: 1 }), 200, /without access_token/],
  [JSON.stringify({ access_token: "a" }), 200, /without access_token/],
  ["<html>", 200, /without access_token/],
];
for (const [body, status, message] of wrongAnswers) {
  test(`the answer ${status} ${JSON.stringify(body)} of the token server is an error`, () =>
    assert.rejects(googleKeySource(JSON.stringify(account), asking(body, status).options)(), message));
}
