/**
 * `npm run bench -- translate`: compares the CPU time of translated streams with native ones, for clients of all
 * dialects and a provider of the chat dialect.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { compare } from "../support/compare.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { freePort, start } from "../support/process.mjs";
import { CHAT_PATH, PROVIDER } from "../support/workloads.mjs";

const NATIVE = "chat client, native";
const content = "word ".repeat(130);
const messages = [{ role: "user", content }];
const CLIENTS = [
  [NATIVE, CHAT_PATH, { model: "small", stream: true, messages }],
  ["messages client", "/v1/messages", { model: "small", stream: true, max_tokens: 500, messages }],
  ["responses client", "/v1/responses", { model: "small", stream: true, input: content }],
  [
    "generateContent client",
    "/v1beta/models/small:streamGenerateContent?alt=sse",
    { contents: [{ role: "user", parts: [{ text: content }] }] },
  ],
];

export async function benchTranslate({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-translate-"));
  const running = [];
  try {
    const providerPort = await freePort();
    running.push(await start(process.execPath, [PROVIDER, String(providerPort)], providerPort));
    const port = await freePort();
    const file = join(folder, "config.yaml");
    const provider = { openAICompatible: { baseUrl: `http://127.0.0.1:${providerPort}/v1`, responses: false } };
    const config = {
      config: { adminAddr: "off", logging: { level: "info,access=off" } },
      gateways: { default: { port, address: "127.0.0.1" } },
      routes: [{ backends: [{ ai: { provider, auth: { key: "k" } } }] }],
    };
    writeFileSync(file, JSON.stringify(config));
    const program = fileURLToPath(new URL("../../dist/gateway.js", import.meta.url));
    const gateway = await start(process.execPath, [program, "-f", file], port);
    running.push(gateway);
    const contestants = CLIENTS.map(([name, path, body]) => ({
      ...gateway,
      name,
      request: httpRequest({ method: "POST", path, body: JSON.stringify(body) }),
    }));
    await compare({
      title: "stream of 100 chunks, 60 at once: native and translated",
      contestants,
      warmUp: quick ? 300 : 1500,
      rounds: quick ? 9 : 21,
      perRound: quick ? 60 : 120,
      baseline: NATIVE,
      run: ({ request }, count) => sendLoad({ port, request, count, connections: 60 }),
    });
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
