/**
 * Runs a gateway with several MCP servers, some of which send random invalid data from a seed. Each client request
 * must get one response with its ID in time, which contains the items of the working servers, and no exception may be
 * uncaught.
 */
import assert from "node:assert/strict";
import { randomFrom } from "../random.ts";
import { type Json, LEGACY_HEADERS, readAnswer } from "./client.ts";
import { modernRequest } from "./modern-client.ts";
import { pick } from "./mutate.ts";
import { ANY_METHOD, LISTS_OF_TOOLS, OVER_HTTP } from "./nonsense-cases.ts";
import { type Script, type ScriptedServer, type Step, startScripted, type Transport } from "./scripted-server.ts";
import { serveMcp } from "./serve-backend.ts";

/** Longer than the handshake of both eras and a call, each with a silent server, can take (5 s each, and 5 s to probe). */
const LIMIT_MS = 60_000;
const METHODS = ["initialize", "server/discover", "tools/list", "tools/call", "prompts/list", "resources/read"];
const CASES = [...ANY_METHOD, ...LISTS_OF_TOOLS];

export interface FuzzOptions {
  readonly seed: number;
  readonly count: number;
  /** Runs at a time. */
  readonly concurrency?: number;
  report?(line: string): void;
}

/** Throws at the first violation, with the seed that shows it again (`count: 1`). */
export async function fuzzNonsense({ seed, count, concurrency = 4, report }: FuzzOptions): Promise<void> {
  const uncaught: unknown[] = [];
  const heard = (error: unknown): void => void uncaught.push(error);
  process.on("uncaughtException", heard);
  process.on("unhandledRejection", heard);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const one = seed + next++;
      try {
        await runOnce(one);
      } catch (error) {
        next = count;
        throw new Error(`seed ${one}: ${(error as Error).message}`, { cause: error });
      }
      report?.(`seed ${one}: ok`);
    }
  };
  try {
    const ended = await Promise.allSettled(Array.from({ length: Math.min(concurrency, count) }, worker));
    for (const one of ended) if (one.status === "rejected") throw one.reason;
    assert.deepEqual(uncaught, []);
  } finally {
    process.off("uncaughtException", heard);
    process.off("unhandledRejection", heard);
  }
}

async function runOnce(seed: number): Promise<void> {
  const random = randomFrom(seed);
  const isModern = random() < 0.5;
  const isPrefixed = random() < 0.8;
  const servers: ScriptedServer[] = [];
  const good: string[] = [];
  const names = ["a", "b", "c", "d"].slice(0, 2 + Math.floor(random() * 3));
  for (const name of names) {
    const isGood = name === "a" || random() < 0.3;
    if (isGood) good.push(name);
    const era = random() < 0.5 ? "legacy" : "modern";
    // The first is of this process, so that the machine's load does not make it late.
    const transport: Transport =
      name === "a"
        ? "http"
        : era === "modern"
          ? pick(random, ["stdio", "http"])
          : pick(random, ["stdio", "http", "sse"]);
    servers.push(await startScripted(transport, { name, era, steps: isGood ? {} : stepsOf(random, transport) }));
  }
  const served = await serveMcp({
    targets: servers.map(({ target }) => target),
    requestTimeout: "5s",
    prefixMode: isPrefixed ? "always" : "never",
  });
  try {
    const session = isModern ? undefined : await openSession(served.url);
    const ask = (id: number, method: string, params: Record<string, unknown>): Promise<Json> =>
      request(served.url, session, isModern, id, method, params);
    const calls = names.map((name, i) => ask(10 + i, "tools/call", { name: isPrefixed ? `${name}_echo` : "echo" }));
    const [tools, prompts, ...called] = await Promise.all([
      ask(1, "tools/list", {}),
      ask(2, "prompts/list", {}),
      ...calls,
    ]);
    for (const name of isPrefixed ? good : []) {
      const has = (items: Json[] | undefined, wanted: string): boolean =>
        items?.some((one) => one.name === wanted) === true;
      assert.ok(has(tools.result?.tools, `${name}_echo`), `tools of ${name}: ${JSON.stringify(tools).slice(0, 500)}`);
      assert.ok(
        has(prompts.result?.prompts, `${name}_greeting`),
        `prompts of ${name}: ${JSON.stringify(prompts).slice(0, 500)}`,
      );
      assert.equal(called[names.indexOf(name)].result?.content[0].text, `echo of ${name}`);
    }
    if (!isPrefixed) assert.ok(tools.result?.tools.some((one: Json) => one.name === "echo"));
  } finally {
    await served.close();
    for (const one of servers) await one.close();
  }
}

/** What a bad server does to the first requests of each method. */
function stepsOf(random: () => number, transport: Transport): Script["steps"] {
  const cases = transport === "http" ? [...CASES, ...OVER_HTTP] : CASES;
  const steps = (): readonly Step[] => {
    const kind = random();
    const seed = Math.floor(random() * 2 ** 31);
    if (kind < 0.45) return [{ mutated: seed }];
    if (kind < 0.55) return [{ mutated: seed }, { good: true }];
    if (kind < 0.65) return [{ good: true }, { mutated: seed }];
    if (kind < 0.85) return pick(random, cases).steps;
    if (kind < 0.9) return [{ mutated: seed }, { end: "exit" }];
    if (kind < 0.95) return [{ end: pick(random, ["exit", "close"]) }];
    return kind < 0.97 ? [] : [{ stay: true }];
  };
  // The handshake is spoilt less often: behind it there is more to spoil.
  const isSpoilt = (method: string): boolean =>
    random() < (method === "initialize" || method === "server/discover" ? 0.2 : 0.9);
  return Object.fromEntries(METHODS.filter(isSpoilt).map((method) => [method, [steps(), steps()]]));
}

async function openSession(url: string): Promise<string> {
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "fuzz", version: "1" } };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params });
  const answer = await readAnswer(
    await fetch(url, { method: "POST", headers: LEGACY_HEADERS, body, signal: AbortSignal.timeout(LIMIT_MS) }),
  );
  assert.equal(answer.message.id, 0);
  return answer.headers.get("mcp-session-id") ?? assert.fail(`no session: ${answer.text.slice(0, 500)}`);
}

/** One request, and the rules that every answer keeps. */
async function request(
  url: string,
  session: string | undefined,
  isModern: boolean,
  id: number,
  method: string,
  params: Record<string, unknown>,
): Promise<Json> {
  const { body, headers } = isModern
    ? modernRequest(method, params, { id })
    : {
        body: JSON.stringify({ jsonrpc: "2.0", id, method, params }),
        headers: { ...LEGACY_HEADERS, "mcp-session-id": session ?? "" },
      };
  const signal = AbortSignal.timeout(LIMIT_MS);
  const { messages, message } = await readAnswer(await fetch(url, { method: "POST", headers, body, signal }));
  const answers = messages.filter((one) => one.method === undefined);
  assert.ok(answers.length <= 1, `${answers.length} answers to ${method}`);
  assert.equal(message?.id, id, `${method} was not answered under its id`);
  assert.ok((message.result === undefined) !== (message.error === undefined), `${method}: a result or an error`);
  return message;
}
