import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { Fetch, FetchRequest } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import { type EntraSettings, entraTokenSource } from "./azure.ts";

interface Asked {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly form: Record<string, string>;
}

async function ask(
  settings: EntraSettings,
  environment: Record<string, string>,
  answer: object = { access_token: "token", expires_in: "3600" },
): Promise<{ asked: Asked; value: string; expiresAtMs: number }> {
  const requests: FetchRequest[] = [];
  const fetch: Fetch = async (request) => {
    requests.push(request);
    return { status: 200, headers: new HeaderList(), body: Buffer.from(JSON.stringify(answer)) };
  };
  const clock = fakeClock(1_000_000);
  const lease = await entraTokenSource(settings, environment, { clock, fetch })();
  const [request] = requests;
  assert.ok(request);
  const form = Object.fromEntries(new URLSearchParams(request.body?.toString() ?? ""));
  return { asked: { url: request.url, headers: request.headers ?? {}, form }, ...lease } as never;
}

test("an application's secret is exchanged at its tenant", async () => {
  const { asked, value, expiresAtMs } = await ask({ tenantId: "t", clientId: "c", clientSecret: "s" }, {});
  assert.equal(asked.url, "https://login.microsoftonline.com/t/oauth2/v2.0/token");
  assert.deepEqual(asked.form, {
    grant_type: "client_credentials",
    client_id: "c",
    scope: "https://cognitiveservices.azure.com/.default",
    client_secret: "s",
  });
  assert.deepEqual([value, expiresAtMs], ["token", 1_000_000 + 3_600_000]);
});

test("a workload's federated token is read anew and exchanged", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "entra-")), "token");
  writeFileSync(file, "assertion\n");
  const environment = { AZURE_TENANT_ID: "t", AZURE_CLIENT_ID: "c", AZURE_FEDERATED_TOKEN_FILE: file };
  const { asked } = await ask({}, { ...environment, AZURE_AUTHORITY_HOST: "https://login.example/" });
  assert.equal(asked.url, "https://login.example/t/oauth2/v2.0/token");
  assert.equal(asked.form.client_assertion, "assertion");
});

test("the managed identity of an app service, and of a machine", async () => {
  const service = await ask(
    { clientId: "mine" },
    { IDENTITY_ENDPOINT: "http://127.0.0.1:1/token", IDENTITY_HEADER: "h" },
  );
  assert.match(service.asked.url, /^http:\/\/127\.0\.0\.1:1\/token\?.*api-version=2019-08-01&client_id=mine$/);
  assert.equal(service.asked.headers["x-identity-header"], "h");
  const machine = await ask({}, {});
  assert.match(machine.asked.url, /^http:\/\/169\.254\.169\.254\/metadata\/identity\/oauth2\/token\?/);
  assert.equal(machine.asked.headers.metadata, "true");
});

test("a secret without its application is refused at load", () => {
  const clock = fakeClock();
  const fetch: Fetch = async () => assert.fail();
  assert.throws(() => entraTokenSource({ clientSecret: "s" }, {}, { clock, fetch }), /tenantId/);
});

test("an answer without a lifetime is no token", async () => {
  await assert.rejects(ask({}, {}, { access_token: "t", expires_in: "soon" }), /expires_in/);
});
