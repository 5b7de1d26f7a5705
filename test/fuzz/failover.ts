/**
 * LLM failover with providers that fail at any byte: statuses, broken heads and bodies, resets, silence, small pieces;
 * one to four targets, JSON and streams, in the provider's words and in translation, slow clients and clients that leave.
 * Each answer must be that of exactly one provider, each call that was given up must be closed, each charge must be that
 * of the answer, and nothing may hang. Importable with a count and a seed; returns what went wrong, in words.
 */
import { type IncomingMessage, request } from "node:http";
import { performance } from "node:perf_hooks";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type FaultyProvider, type ProviderCall, startFaultyProvider } from "../support/llm/faulty-provider.ts";
import { errorBytes, readText, textOf } from "../support/llm/provider-answers.ts";
import { type Case, Dice, PATTERNS, planCase, WORDS } from "./failover-cases.ts";

export interface FuzzOptions {
  readonly count: number;
  readonly seed: number;
  /** Cases that run at the same time. */
  readonly parallel?: number;
}

/** Told from other delays by its length; it passes only when all cases wait for it. */
const HEAD_LIMIT_MS = 1_234_567;
/**
 * Client, gateway and providers share this process: while one of them has something to do, its loop does not rest. A
 * second of rest is a second in which nothing went on; a process that gets no processor has no hanging case.
 */
const CASE_LIMIT_MS = 1_000;
const TICK_MS = 100;

interface Outcome {
  readonly status: number;
  readonly body: string;
  readonly isComplete: boolean;
  readonly left: boolean;
}

interface World {
  readonly gateway: TestGateway;
  readonly cases: Map<number, Case>;
  rested(): void;
  /** Lets the time for a response head run out, once nothing else can happen. */
  look(): void;
  close(): Promise<void>;
}

async function openWorld(): Promise<World> {
  const cases = new Map<number, Case>();
  let laterMs = 0;
  const limits = new Set<() => void>();
  const clock: Clock = {
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() + laterMs,
    after(delayMs, callback) {
      if (delayMs !== HEAD_LIMIT_MS) return systemClock.after(delayMs, callback);
      limits.add(callback);
      return { cancel: () => void limits.delete(callback) };
    },
  };
  const providers: FaultyProvider[] = [];
  const routes: string[] = [];
  const listeners: string[] = [];
  for (let index = 0; index < WORDS.length; index++) {
    providers.push(
      await startFaultyProvider(
        (body) => caseOf(cases, body)?.targets[index]?.script ?? { bytes: errorBytes(500) },
        (call) => {
          const one = caseOf(cases, call.body);
          one?.calls.push({ target: index, call });
          one?.onCall();
        },
      ),
    );
  }
  PATTERNS.forEach((families, pattern) => {
    for (let count = 1; count <= WORDS.length; count++) {
      const name = `p${pattern}n${count}`;
      const groups = providers.slice(0, count).map(({ host }, index) => {
        const family = families[index % families.length] ?? "openAI";
        return `{ providers: [{ provider: { ${family}: { model: m } }, auth: { key: k }, hostOverride: "${host}", timeouts: { firstByte: ${HEAD_LIMIT_MS}ms } }] }`;
      });
      listeners.push(`${name}: { port: 0 }`);
      routes.push(
        `  - { name: ${name}, gateways: ${name}, policies: { timeout: { backendRequestTimeout: ${HEAD_LIMIT_MS}ms } }, backends: [{ ai: { groups: [${groups.join(", ")}] } }] }`,
      );
    }
  });
  const gateway = await startGateway(
    `
config: { logging: { format: json } }
gateways: { ${listeners.join(", ")} }
routes:
${routes.join("\n")}
`,
    { clock },
  );
  return {
    gateway,
    cases,
    rested() {
      laterMs += 60_000;
    },
    look() {
      for (const { isStuck } of cases.values()) if (!isStuck) return;
      for (const one of cases.values()) one.isStuck = false;
      // What one of them cancels is not due any more.
      for (const callback of [...limits]) if (limits.delete(callback)) callback();
    },
    async close() {
      await gateway.close();
      for (const provider of providers) await provider.close();
    },
  };
}

function caseOf(cases: ReadonlyMap<number, Case>, body: string): Case | undefined {
  return cases.get(Number(/case-(\d+)\b/.exec(body)?.[1]));
}

/** Runs the cases; the result is empty if all is well. */
export async function fuzzFailover({ count, seed, parallel = 10 }: FuzzOptions): Promise<string[]> {
  const dice = new Dice(seed);
  const world = await openWorld();
  const problems: string[] = [];
  try {
    for (let from = 0; from < count; from += parallel) {
      const some = Array.from({ length: Math.min(parallel, count - from) }, (_, i) => planCase(dice, from + i));
      for (const one of some) world.cases.set(one.id, one);
      // Targets that failed in the cases before are asked in their order again.
      world.rested();
      const found = await Promise.all(some.map((one) => runCase(world, one)));
      found.forEach((reasons, i) => {
        const one = some[i] as Case;
        for (const reason of reasons) problems.push(`seed ${seed} case ${one.id}: ${reason} (${describe(one)})`);
      });
    }
  } finally {
    await world.close();
  }
  return problems;
}

function describe(one: Case): string {
  const targets = one.targets.map(
    ({ fate, plan, script }) => `${plan.family} ${fate}, ${plan.bytes} bytes, ${script.fault ?? "whole"}`,
  );
  return `${one.client} client, ${one.stream ? "stream" : "JSON"}, ${JSON.stringify(one.leaves ?? "stays")}; ${targets.join("; ")}; called ${one.calls.map(({ target }) => target).join(",")}`;
}

async function runCase(world: World, one: Case): Promise<string[]> {
  const problems: string[] = [];
  const outcome = await inTime(ask(world, one));
  world.cases.delete(one.id);
  world.look();
  if (outcome === undefined) return ["the client waits for ever"];
  const closed = await inTime(Promise.all(one.calls.map(({ call }) => isOver(call))));
  if (closed === undefined) problems.push("a call that was given up stays open");
  const line = await inTime(settledLine(world, `"id":"fuzz-${one.id}"`));
  if (line === undefined) problems.push("the request was never settled");
  const asked = one.calls.map(({ target }) => target);
  if (new Set(asked).size !== asked.length) problems.push("a target was asked twice");
  problems.push(...(outcome.left ? [] : judge(one, outcome, line ?? "{}")));
  return problems;
}

/** Mostly one of the last. */
async function settledLine({ gateway }: World, text: string): Promise<string> {
  return gateway.log().findLast((line) => line.includes(text)) ?? gateway.logged(text);
}

/** Sent to its end, or closed: a provider may learn a turn later than the client that its answer was whole. */
function isOver(call: ProviderCall): Promise<void> {
  return call.script.fault === undefined ? Promise.race([call.stopped, call.closed]) : call.closed;
}

/** What a client that stayed must have got, by the fates of the targets that were asked. */
function judge(one: Case, { status, body, isComplete }: Outcome, line: string): string[] {
  const problems: string[] = [];
  one.calls.forEach(({ target }, i) => {
    const fate = one.targets[target]?.fate;
    const isLast = i === one.calls.length - 1;
    if (!isLast && (fate === "answers" || fate === "breaks after its head"))
      problems.push(`target ${target} ${fate}, and another was asked`);
    if (isLast && fate === "fails before its head" && one.calls.length < one.targets.length)
      problems.push(`target ${target} failed, and no other was asked`);
  });
  const last = one.targets[one.calls.at(-1)?.target ?? -1];
  if (last === undefined) return [...problems, "no target was asked"];
  const charged = JSON.parse(line) as Record<string, unknown>;
  const text = readText(body, one.client, one.stream);
  if (last.fate === "answers") {
    if (status !== 200 || !isComplete) problems.push(`status ${status}, ${isComplete ? "complete" : "broken"}`);
    else if (text !== textOf(last.plan)) problems.push(`the answer is not that of ${last.plan.word}`);
    if (charged["gen_ai.usage.input_tokens"] !== last.plan.inputTokens) problems.push("the input is not charged right");
    if (charged["gen_ai.usage.output_tokens"] !== last.plan.outputTokens)
      problems.push("the output is not charged right");
    return problems;
  }
  if (status === 200 && isComplete) problems.push(`a broken answer looks whole: ${body.slice(0, 80)}`);
  if (!textOf(last.plan).startsWith(text)) problems.push("what came is not the beginning of one answer");
  if (last.fate === "fails before its head" && status < 400) problems.push(`status ${status} though all failed`);
  if (last.fate === "fails before its head" && charged["gen_ai.usage.output_tokens"] !== 0)
    problems.push("output is charged though there was none");
  return problems;
}

/** The client; it leaves when the case says so, or when the provider will say nothing more. */
function ask(world: World, one: Case): Promise<Outcome> {
  const { client, stream, leaves } = one;
  return new Promise((resolve) => {
    let status = 0;
    let left = false;
    let size = 0;
    const chunks: Buffer[] = [];
    const done = (isComplete: boolean): void =>
      resolve({ status, body: Buffer.concat(chunks).toString(), isComplete, left });
    const leave = (): void => {
      left = true;
      req.destroy();
    };
    const path = client === "openAI" ? "/v1/chat/completions" : "/v1/messages";
    const url = `${world.gateway.url(one.listener)}${path}`;
    const headers = { "content-type": "application/json", "x-request-id": `fuzz-${one.id}` };
    const req = request(url, { method: "POST", headers, agent: false });
    // The request may close before a slow reader has taken what came.
    req.on("error", () => {
      if (status === 0 || left) done(false);
    });
    req.on("close", () => {
      if (status === 0 || left) done(false);
    });
    req.on("response", (res: IncomingMessage) => {
      status = res.statusCode ?? 0;
      res.on("data", (chunk: Buffer) => {
        chunks.push(chunk);
        size += chunk.length;
        if (leaves && "afterBytes" in leaves && size > leaves.afterBytes) leave();
        else if (one.slowClient) {
          res.pause();
          setImmediate(() => setImmediate(() => res.resume()));
        }
      });
      res.on("end", () => done(res.complete));
      res.on("error", () => done(false));
      res.on("close", () => done(false));
    });
    one.onCall = () => {
      const { target, call } = one.calls.at(-1) ?? {};
      if (leaves && "atCall" in leaves && one.calls.length >= leaves.atCall) setImmediate(leave);
      one.isStuck = false;
      const planned = one.targets[target ?? -1];
      if (planned?.script.fault !== "hang") return;
      void call?.stopped.then(() => {
        // A running answer has no time limit: the client is the one that gives up.
        if (planned.fate === "breaks after its head") leave();
        else if (one.calls.at(-1)?.call === call) {
          one.isStuck = true;
          world.look();
        }
      });
    };
    const content = `case-${one.id} says hello`;
    req.end(JSON.stringify({ model: "m", max_tokens: 64, stream, messages: [{ role: "user", content }] }));
  });
}

function inTime<Value>(promise: Promise<Value>): Promise<Value | undefined> {
  return new Promise((resolve) => {
    let restedMs = 0;
    let last = performance.eventLoopUtilization();
    const timer = setInterval(() => {
      const now = performance.eventLoopUtilization();
      restedMs += Math.min(TICK_MS, performance.eventLoopUtilization(now, last).idle);
      last = now;
      if (restedMs < CASE_LIMIT_MS) return;
      clearInterval(timer);
      resolve(undefined);
    }, TICK_MS);
    void promise.then((value) => {
      clearInterval(timer);
      resolve(value);
    });
  });
}
