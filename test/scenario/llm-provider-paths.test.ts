/**
 * Paths and forms of providers beside chat: Gemini's files and caches, rerank, forms with files by their model, Azure's
 * dated API, Mistral's quirks, and Entra ID.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";

interface Seen {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

const seen: Seen[] = [];
const server = createServer((req, res) => {
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => chunks.push(chunk));
  req.on("end", () => {
    const { method, url, headers } = req;
    seen.push({ method, url, headers, body: Buffer.concat(chunks).toString("latin1") });
    res.writeHead(200, { "content-type": "application/json" });
    res.end(
      JSON.stringify(url?.includes("oauth2") ? { access_token: "entra-token", expires_in: 3600 } : { text: "ok" }),
    );
  });
});
let gateway: TestGateway;

before(async () => {
  await once(server.listen(0, "127.0.0.1"), "listening");
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  gateway = await startGateway(
    `
gateways: { gemini: { port: 0 }, azure: { port: 0 }, many: { port: 0 }, cohere: { port: 0 } }
routes:
  - { gateways: gemini, backends: [{ ai: { provider: { gemini: {} }, auth: { key: k }, hostOverride: "${host}" } }] }
  - { gateways: azure, backends: [{ ai: { provider: { azure: { resourceName: r, apiVersion: 2024-10-21 } }, auth: { azure: {} }, hostOverride: "${host}" } }] }
  - gateways: cohere
    backends: [{ ai: { models: [{ name: "*", provider: cohere, params: { apiKey: k, baseUrl: "http://${host}/compatibility/v1" } }] } }]
  - gateways: many
    backends:
      - ai:
          models:
            - { name: hear, provider: openAI, params: { model: whisper-1, apiKey: a, baseUrl: "http://${host}/one/v1" } }
            - { name: mistral, provider: mistral, params: { model: large, apiKey: b, baseUrl: "http://${host}/two/v1" } }
`,
    {
      environment: {
        AZURE_TENANT_ID: "t",
        AZURE_CLIENT_ID: "c",
        AZURE_CLIENT_SECRET: "s",
        AZURE_AUTHORITY_HOST: `http://${host}`,
      },
    },
  );
});
after(async () => {
  await gateway?.close();
  server.close();
  server.closeAllConnections();
});

async function send(listener: string, path: string, init: RequestInit): Promise<Seen> {
  const response = await fetch(`${gateway.url(listener)}${path}`, init);
  assert.equal(response.status, 200, await response.text());
  return seen.at(-1) as Seen;
}

const json = (body: object): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});

const geminiPaths: [path: string, init: RequestInit, url: string][] = [
  ["/v1beta/files", { method: "GET" }, "/v1beta/files"],
  [
    "/upload/v1beta/files?uploadType=resumable",
    json({ file: { display_name: "a" } }),
    "/upload/v1beta/files?uploadType=resumable",
  ],
  ["/v1beta/cachedContents", json({ model: "models/gemini-x", contents: [] }), "/v1beta/cachedContents"],
  ["/v1beta/interactions", json({ model: "gemini-x", input: "hi" }), "/v1beta/interactions"],
  ["/v1beta/models/imagen-4:predict", json({ instances: [] }), "/v1beta/models/imagen-4:predict"],
];
for (const [path, init, url] of geminiPaths) {
  test(`Gemini's ${path} goes to the same place, with the body as it came`, async () => {
    const asked = await send("gemini", path, init);
    assert.equal(asked.url, url);
    assert.equal(asked.headers["x-goog-api-key"], "k");
    if (typeof init.body === "string") assert.deepEqual(JSON.parse(asked.body), JSON.parse(init.body));
  });
}

test("rerank keeps the version that was asked for", async () => {
  const body = { model: "rerank-v3.5", query: "q", documents: [] };
  assert.equal((await send("cohere", "/v2/rerank", json(body))).url, "/v2/rerank");
  assert.equal((await send("cohere", "/v1/rerank", json(body))).url, "/compatibility/v1/rerank");
});

function form(model: string): RequestInit {
  const data = new FormData();
  data.set("model", model);
  data.set("file", new Blob([Buffer.from([0, 255, 10, 13])]), "a.wav");
  return { method: "POST", body: data };
}

test("a form with files goes to the provider of its model, under the provider's name", async () => {
  const asked = await send("many", "/v1/audio/transcriptions", form("hear"));
  assert.equal(asked.url, "/one/v1/audio/transcriptions");
  assert.equal(asked.headers.authorization, "Bearer a");
  assert.match(asked.body, /name="model"\r\n\r\nwhisper-1\r\n/);
  assert.ok(asked.body.includes("\0\xff\n\r"), "the file is as it was");
  const missing = await fetch(`${gateway.url("many")}/v1/audio/transcriptions`, form("nobody"));
  assert.equal(missing.status, 404);
});

test("a form at Azure's dated API names the deployment in its path, with a token of Entra ID", async () => {
  const asked = await send("azure", "/v1/audio/transcriptions", form("my-whisper"));
  assert.equal(asked.url, "/openai/deployments/my-whisper/audio/transcriptions?api-version=2024-10-21");
  assert.equal(asked.headers.authorization, "Bearer entra-token");
  assert.equal(asked.headers["api-key"], undefined);
  assert.ok(seen.some(({ url }) => url === "/t/oauth2/v2.0/token"));
});

test("Mistral is not sent what it refuses", async () => {
  const messages = [{ role: "user", content: "Hi" }];
  const tools = [{ name: "f", input_schema: { type: "object" } }];
  const asked = await send(
    "many",
    "/v1/messages",
    json({
      model: "mistral",
      max_tokens: 5,
      messages,
      tools,
      tool_choice: { type: "any" },
      metadata: { user_id: "u" },
      stream: true,
    }),
  ).catch(() => seen.at(-1) as Seen);
  const body = JSON.parse(asked.body) as Record<string, unknown>;
  assert.deepEqual(
    [body.user, body.stream_options, body.tool_choice, body.max_tokens],
    [undefined, undefined, "any", 5],
  );
});
