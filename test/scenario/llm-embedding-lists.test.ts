/**
 * A list of texts for a model that embeds one at a time (Titan and Nova on Bedrock): one call per text, few at once, one answer.
 * The stand-in holds every call until the test answers it, so that order, cancelling and charges are known exactly.
 */
import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import OpenAI from "openai";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";

interface Held {
  readonly text: string;
  readonly signature: string;
  readonly response: ServerResponse;
  isClosed: boolean;
}

let gateway: TestGateway;
let held: Held[] = [];
/** Answers at once where it is set. */
let atOnce: ((one: Held) => void) | undefined;

const server = createServer((req, res) => {
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => chunks.push(chunk));
  req.on("end", () => {
    const body = JSON.parse(Buffer.concat(chunks).toString()) as {
      inputText?: string;
      singleEmbeddingParams?: { text: { value: string } };
    };
    const text = body.inputText ?? body.singleEmbeddingParams?.text.value ?? "";
    const one: Held = { text, signature: req.headers.authorization ?? "", response: res, isClosed: false };
    res.on("close", () => {
      if (!res.writableFinished) one.isClosed = true;
    });
    held.push(one);
    atOnce?.(one);
  });
});

/** The vector of text number n is [n, n]; it has n + 1 tokens. */
function answer({ text, response }: Held): void {
  const n = Number(text.slice(1));
  response
    .writeHead(200, { "content-type": "application/json", "x-amzn-bedrock-input-token-count": String(n + 1) })
    .end(JSON.stringify({ embedding: [n, n] }));
}

before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const aws = `provider: bedrock, params: { awsRegion: us-east-1, awsAccessKeyId: A, awsSecretAccessKey: s, hostOverride: "${host}"`;
  gateway = await startGateway(`
config: { logging: { format: json } }
llm:
  port: 0
  models:
    - { name: titan, ${aws}, model: "amazon.titan-embed-text-v2:0" } }
    - { name: nova, ${aws}, model: "amazon.nova-2-multimodal-embeddings-v1:0" } }
    - { name: second, ${aws}, model: "amazon.titan-embed-text-v1" } }
    - { name: few, ${aws}, model: "amazon.titan-embed-text-v1", perMinute: { requests: 3 } } }
  virtualModels:
    - { name: both, routing: { failover: { targets: [{ model: titan, priority: 0 }, { model: second, priority: 1 }] } } }
`);
});
beforeEach(() => {
  held = [];
  atOnce = undefined;
});
after(async () => {
  await gateway?.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const client = () => new OpenAI({ baseURL: `${gateway.url()}/v1`, apiKey: "x", maxRetries: 0 });
const texts = (count: number): string[] => Array.from({ length: count }, (_, i) => `t${i}`);
const line = async (id: string): Promise<Record<string, unknown>> => JSON.parse(await gateway.logged(`"id":"${id}"`));
const sent = (count: number) => eventually(`${count} calls`, () => held.length === count);
const closed = (count: number) =>
  eventually(`${count} calls closed`, () => held.filter(({ isClosed }) => isClosed).length === count);
const ask = (model: string, count: number, id: string, signal?: AbortSignal) =>
  client().embeddings.create(
    { model, input: texts(count), encoding_format: "float" },
    { headers: { "x-request-id": id }, ...(signal ? { signal } : {}) },
  );

test("20 texts: eight calls at a time, answered in any order, one answer in the right order", async () => {
  const asked = ask("titan", 20, "in-order");
  await sent(8);
  // The last that was sent is answered first.
  for (let done = 0; done < 20; done++) {
    const open = held.filter(({ response }) => !response.headersSent);
    assert.ok(open.length <= 8);
    answer(open.at(-1) as Held);
    await sent(Math.min(20, 9 + done));
  }
  const { data, usage } = await asked;
  assert.deepEqual(
    data.map(({ index, embedding }) => [index, embedding]),
    texts(20).map((_, i) => [i, [i, i]]),
  );
  assert.deepEqual(usage, { prompt_tokens: 210, total_tokens: 210 });
  assert.equal(new Set(held.map(({ signature }) => signature)).size, 20, "each call has a signature of its own");
  const logged = await line("in-order");
  assert.equal(logged["gen_ai.usage.input_tokens"], 210);
  assert.equal(logged["llm.provider_calls"], 20);
});

test("2,048 texts pass", async () => {
  atOnce = answer;
  const { data } = await ask("titan", 2048, "many");
  assert.equal(data.length, 2048);
  assert.deepEqual(data[2047]?.embedding, [2047, 2047]);
});

test("Nova: no counts in its answers, so the estimate is charged", async () => {
  atOnce = ({ response }) =>
    response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ embeddings: [{ embeddingType: "TEXT", embedding: [1] }] }));
  const { data } = await ask("nova", 3, "nova");
  assert.equal(data.length, 3);
  assert.ok(((await line("nova"))["gen_ai.usage.input_tokens"] as number) > 0);
});

test("one failure: the provider's error in the client's shape, the others are closed, what was used is charged", async () => {
  const asked = ask("titan", 20, "failed").then(
    () => assert.fail("not refused"),
    (error: InstanceType<typeof OpenAI.APIError>) => error,
  );
  await sent(8);
  answer(held[4] as Held);
  await sent(9);
  const failing = held[2] as Held;
  failing.response
    .writeHead(400, { "content-type": "application/json" })
    .end(JSON.stringify({ message: "expected maxLength: 50000" }));
  const error = await asked;
  assert.equal(error.status, 400);
  assert.match(error.message, /expected maxLength: 50000/);
  await closed(7);
  assert.equal(held.length, 9, "nothing more is sent");
  const used = (await line("failed"))["gen_ai.usage.input_tokens"] as number;
  // Text number 4 has 5 tokens; seven more were being read.
  assert.ok(used >= 5 + 7 && used < 5 + 7 * 12, `${used}`);
});

test("a broken answer fails the request", async () => {
  const asked = ask("titan", 3, "broken").then(
    () => assert.fail("not refused"),
    (error: InstanceType<typeof OpenAI.APIError>) => error,
  );
  await sent(3);
  held[1]?.response.writeHead(200, { "content-type": "application/json", "content-length": "99" }).write("{");
  held[1]?.response.socket?.resetAndDestroy();
  assert.equal((await asked).status, 502);
  await closed(3);
});

test("the client leaves: all calls are closed, and what was asked is charged", async () => {
  const leaving = new AbortController();
  const asked = ask("titan", 100, "left", leaving.signal).catch((error: Error) => error);
  await sent(8);
  leaving.abort();
  await asked;
  await closed(8);
  assert.equal(held.length, 8);
  const used = (await line("left"))["gen_ai.usage.input_tokens"] as number;
  assert.ok(used >= 8 && used < 8 * 12, `${used}: eight texts, not a hundred`);
});

test("failover: the second model answers all of it, nothing of the first is in the answer, both are charged", async () => {
  const asked = ask("both", 3, "over");
  await sent(3);
  answer(held[0] as Held);
  held[1]?.response.writeHead(503).end();
  await sent(6);
  for (const one of held.slice(3)) answer(one);
  const { data, usage } = await asked;
  assert.deepEqual(
    data.map(({ embedding }) => embedding),
    [
      [0, 0],
      [1, 1],
      [2, 2],
    ],
  );
  assert.equal(usage.prompt_tokens, 6);
  assert.ok(((await line("over"))["gen_ai.usage.input_tokens"] as number) > 6);
});

test("each call counts against the model's requests per minute", async () => {
  atOnce = answer;
  await ask("few", 3, "few");
  const error = await ask("few", 2, "few-2").catch((thrown: InstanceType<typeof OpenAI.APIError>) => thrown);
  assert.equal((error as { status?: number }).status, 429);
  assert.equal(held.length, 3);
});

/** The last: calls that were cancelled may still arrive. */
test("answers that would be too large together are refused with the first of them", async () => {
  const vector = JSON.stringify({ embedding: Array.from({ length: 4096 }, (_, i) => i / 7) });
  atOnce = ({ response }) => response.writeHead(200, { "content-type": "application/json" }).end(vector);
  const error = await ask("titan", 1000, "large").then(
    () => assert.fail("not refused"),
    (thrown: InstanceType<typeof OpenAI.APIError>) => thrown,
  );
  assert.equal(error.status, 400);
  assert.match(error.message, /too large together: send fewer at once/);
  assert.ok(held.length <= 16, `${held.length} calls`);
});
