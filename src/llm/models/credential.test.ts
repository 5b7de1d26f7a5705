/**
 * Keys of clients and providers: where they are found, where they go, files that change, and signatures of AWS.
 */
import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { systemClock } from "../../base/clock.ts";
import type { BackendEnv } from "../../core/backend.ts";
import { HeaderList } from "../../http/headers.ts";
import { createAwsSigner } from "../../identity/cloud/aws.ts";
import { fixedValue } from "../../identity/cloud/renewable.ts";
import { addKey, clientKey, compileCredential } from "./credential.ts";

const env: BackendEnv = {
  ...testEnv,
  name: "route0/backend0",
  tls: undefined,
  trustedHosts: [],
  requiresCredential: false,
};

test("the client's key is found wherever its SDK puts it", () => {
  for (const headers of [
    { authorization: "Bearer k" },
    { "x-api-key": "k" },
    { "api-key": "k" },
    { "x-goog-api-key": "k" },
  ]) {
    assert.equal(clientKey(anExchange({ headers: headers as Record<string, string> }), false), "k");
  }
  assert.equal(clientKey(anExchange({ query: "alt=sse&key=k" }), false), "k");
  assert.equal(clientKey(anExchange({ headers: { authorization: "AWS4-HMAC-SHA256 x" } }), false), undefined);
  const withheld = anExchange();
  withheld.credentials.presented = { header: "authorization", value: "Bearer k" };
  assert.equal(clientKey(withheld, false), undefined);
  assert.equal(clientKey(withheld, true), "k");
});

test("a key goes into the header that the provider reads", () => {
  const sent = (form: Parameters<typeof addKey>[1], key: string) => {
    const headers = new HeaderList();
    addKey(headers, form, key);
    return headers.pairs;
  };
  assert.deepEqual(sent("bearer", "k"), ["authorization", "Bearer k"]);
  assert.deepEqual(sent("x-api-key", "k"), ["x-api-key", "k"]);
  assert.deepEqual(sent("x-api-key", "sk-ant-oat01-x"), ["authorization", "Bearer sk-ant-oat01-x"]);
  assert.deepEqual(sent("x-goog-api-key", "k"), ["x-goog-api-key", "k"]);
  assert.deepEqual(sent("aws", "k"), ["authorization", "Bearer k"]);
});

test("a key file is read again after it changed, and a moment without it is bridged", async () => {
  const folder = mkdtempSync(join(tmpdir(), "ai-key-"));
  try {
    const file = join(folder, "key");
    writeFileSync(file, "one\n");
    const clock = fakeClock();
    const credential = compileCredential({ file }, "a", "us-east-1", { ...env, clock });
    assert.ok(credential.kind === "key");
    assert.equal(credential.read(), "one");
    writeFileSync(file, "two\n");
    assert.equal(credential.read(), "one");
    await clock.advance(5_000);
    assert.equal(credential.read(), "two");
    rmSync(file);
    await clock.advance(5_000);
    assert.equal(credential.read(), "two");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("the AWS signature is the one that the specification prescribes", async () => {
  const clock = { ...systemClock, now: () => Date.UTC(2026, 0, 2, 3, 4, 5) };
  const sign = createAwsSigner(
    fixedValue({ accessKeyId: "AKID", secretAccessKey: "secret", sessionToken: "token" }),
    { region: "eu-west-1", service: "bedrock" },
    clock,
  );
  const headers = HeaderList.of({
    host: "bedrock-runtime.eu-west-1.amazonaws.com",
    "content-type": "application/json",
  });
  const body = [Buffer.from('{"a":'), Buffer.from("1}")];
  await sign({
    method: "POST",
    protocol: "https",
    hostname: "bedrock-runtime.eu-west-1.amazonaws.com",
    port: 443,
    path: "/model/anthropic.claude-v2%3A1/converse",
    headers,
    body,
  });

  const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
  const hmac = (key: string | Buffer, text: string): Buffer => createHmac("sha256", key).update(text).digest();
  const names = ["content-type", "host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"];
  // Every segment of the path is encoded once more for the signature (all services but S3).
  const canonical = [
    "POST",
    "/model/anthropic.claude-v2%253A1/converse",
    "",
    ...names.map((name) => `${name}:${headers.get(name)}`),
    "",
    names.join(";"),
    hash('{"a":1}'),
  ].join("\n");
  const scope = "20260102/eu-west-1/bedrock/aws4_request";
  const toSign = ["AWS4-HMAC-SHA256", "20260102T030405Z", scope, hash(canonical)].join("\n");
  const key = ["eu-west-1", "bedrock", "aws4_request"].reduce(
    (secret, part) => hmac(secret, part),
    hmac("AWS4secret", "20260102"),
  );
  const signature = hmac(key, toSign).toString("hex");
  assert.equal(
    headers.get("authorization"),
    `AWS4-HMAC-SHA256 Credential=AKID/${scope}, SignedHeaders=${names.join(";")}, Signature=${signature}`,
  );
});

test("each call is signed with the keys of its moment", async () => {
  let turn = 0;
  const keys = { get: () => ({ accessKeyId: `AKID${++turn}`, secretAccessKey: "s" }), invalidate: () => undefined };
  const sign = createAwsSigner(keys, { region: "eu-west-1", service: "bedrock" }, systemClock);
  const signed = async (): Promise<string> => {
    const headers = HeaderList.of({ host: "h" });
    await sign({ method: "POST", protocol: "https", hostname: "h", port: 443, path: "/", headers, body: [] });
    return headers.get("authorization") ?? "";
  };
  assert.match(await signed(), /Credential=AKID1\//);
  assert.match(await signed(), /Credential=AKID2\//);
});
