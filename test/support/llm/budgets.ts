import type { IncomingMessage, ServerResponse } from "node:http";
import type { TestContext } from "node:test";
import { eventually } from "../eventually.ts";
import type { TestGateway, TestGatewayOptions } from "../gateway.ts";
import { backendFor, gatewayFor } from "../scenario.ts";

/** 1 dollar per million tokens in, 10 out: a call of 100 in and 90 out costs 0.001. */
export const PRICES = JSON.stringify({
  providers: { test: { models: { "gpt-test": { rates: { input: 1, output: 10 } } } } },
});

export type Answer = (
  request: IncomingMessage,
  response: ServerResponse,
  body: { model: string; stream?: boolean },
) => void;

export const USAGE = { prompt_tokens: 100, completion_tokens: 90, total_tokens: 190 };

export const answerWith =
  (usage: object | undefined): Answer =>
  (_request, response, { model, stream }) => {
    if (stream !== true) {
      response.writeHead(200, { "content-type": "application/json", "x-budget-remaining": "a lie" });
      const choices = [{ index: 0, message: { role: "assistant", content: "hi there" }, finish_reason: "stop" }];
      response.end(JSON.stringify({ id: "1", object: "chat.completion", model, choices, usage }));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunk = { id: "1", object: "chat.completion.chunk", model };
    response.write(`data: ${JSON.stringify({ ...chunk, choices: [{ index: 0, delta: { content: "hi" } }] })}\n\n`);
    if (usage) response.write(`data: ${JSON.stringify({ ...chunk, choices: [], usage })}\n\n`);
    response.end("data: [DONE]\n\n");
  };

export async function provider(t: TestContext, answer: Answer): Promise<string> {
  const { host } = await backendFor(t, (request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => answer(request, response, JSON.parse(Buffer.concat(chunks).toString())));
  });
  return host;
}

export function configOf(host: string, budgets: string, more = "", config = ""): string {
  return `
config: { adminAddr: "127.0.0.1:0"${config} }
gateways: { default: { port: 0 } }
routes:
  - name: llm
    backends: [{ ai: { name: test, modelCatalog: prices.json, provider: { openAICompatible: { name: test, baseUrl: "http://${host}/v1" } } } }]
    policies:
      budgets: ${budgets}
${more}
`;
}

export async function setUp(
  t: TestContext,
  answer: Answer,
  budgets: string,
  options: TestGatewayOptions & { readonly more?: string } = {},
): Promise<TestGateway> {
  const host = await provider(t, answer);
  return gatewayFor(t, configOf(host, budgets, options.more), { files: { "prices.json": PRICES }, ...options });
}

export function ask(gateway: TestGateway, body: object = {}, init: RequestInit = {}): Promise<Response> {
  return fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ model: "gpt-test", messages: [{ role: "user", content: "Say hi." }], ...body }),
    ...init,
    headers: { "content-type": "application/json", ...init.headers },
  });
}

export interface Views {
  readonly budgets: { name: string; keysInUse: number; keys: { key: string; spent: number; remaining: number }[] }[];
}

export async function spentOf(gateway: TestGateway, query = ""): Promise<Record<string, number>> {
  const { budgets } = (await (await fetch(`${gateway.adminUrl}/debug/budgets${query}`)).json()) as Views;
  return Object.fromEntries((budgets[0]?.keys ?? []).map(({ key, spent }) => [key, spent]));
}

export const spends = (gateway: TestGateway, expected: Record<string, number>): Promise<void> =>
  eventually(`spent ${JSON.stringify(expected)}`, async () => {
    const found = await spentOf(gateway);
    const keys = Object.keys(expected);
    return Object.keys(found).length === keys.length && keys.every((key) => found[key] === expected[key]);
  });
