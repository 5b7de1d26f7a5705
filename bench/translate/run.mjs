/**
 * `npm run bench -- translate`: compares the CPU time of translated streams with native ones, for clients of all
 * dialects and a provider of the chat dialect.
 */
import { gateways } from "../peers/programs.mjs";
import { compare } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { CHAT_PATH, startBackend } from "../support/workloads.mjs";
import { gatewayRoute } from "../work/config.mjs";

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
  const backend = await startBackend({ of: "llm", isStepped: false });
  const provider = { openAICompatible: { baseUrl: `http://127.0.0.1:${backend.port}/v1`, responses: false } };
  const configure = (_program, { port }) => gatewayRoute({ port, backend: { ai: { provider, auth: { key: "k" } } } });
  const programs = gateways().slice(0, 1);
  try {
    await withContestants({ programs, values: {}, configure }, async ([gateway]) => {
      if (gateway === undefined) throw new Error("the gateway did not start");
      await compare({
        title: "stream of 100 chunks, 60 at once: native and translated",
        contestants: CLIENTS.map(([name, path, body]) => ({
          ...gateway,
          name,
          request: httpRequest({ method: "POST", path, body: JSON.stringify(body) }),
        })),
        warmUp: quick ? 300 : 1500,
        rounds: quick ? 9 : 21,
        perRound: quick ? 60 : 120,
        baseline: NATIVE,
        run: ({ port, request }, count) => sendLoad({ port, request, count, connections: 60 }),
      });
    });
  } finally {
    await backend.stop();
  }
}
