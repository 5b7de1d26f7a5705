/**
 * Loaded into a gateway process with `node --import`: each SIGWINCH makes the next stage throw once when it is
 * reached.
 */

import { systemClock } from "../../src/base/clock.ts";
import { LineSplitter } from "../../src/base/line-splitter.ts";
import { ResponseParser } from "../../src/http/h1/response-parser.ts";
import { FrameCounter } from "../../src/http/websocket-frames.ts";
import { StderrTail, StdioProcess } from "../../src/mcp/transports/stdio-transport.ts";
import { ClientConnection } from "../../src/pipeline/listen/client-connection.ts";
import { ResponseWriter } from "../../src/pipeline/listen/response-writer.ts";
import { BackendCall } from "../../src/pipeline/phases/attempt-runner.ts";
import { Delivery } from "../../src/pipeline/phases/delivery.ts";
import { requestHeaderModifier } from "../../src/policies/request-header-modifier/policy.ts";

type Methods = Record<string, (...args: unknown[]) => unknown>;

let armed: string | undefined;
let installing = "";

function boom(stage: string): void {
  if (armed !== stage) return;
  armed = undefined;
  throw new Error('injected, with a "secret-of-a-client" in quotes');
}

function before(owner: object, name: string, applies: (args: unknown[]) => boolean = () => true): void {
  const methods = owner as Methods;
  const original = methods[name];
  if (original === undefined) throw new Error(`no method ${name}`);
  const stage = installing;
  methods[name] = function (this: unknown, ...args: unknown[]) {
    if (applies(args)) boom(stage);
    return original.apply(this, args);
  };
}

/** Callbacks of timers throw, not those who set them. */
function inTimers(name: "after" | "every"): void {
  const clock = systemClock as unknown as Record<string, (ms: number, callback: () => void) => unknown>;
  const original = clock[name];
  const stage = installing;
  clock[name] = (ms, callback) =>
    original?.(ms, () => {
      boom(stage);
      callback();
    });
}

function inHook(): void {
  const policy = requestHeaderModifier as unknown as { compile: (...args: unknown[]) => { shape: object } };
  const { compile } = policy;
  const stage = installing;
  policy.compile = (...args) => {
    const hooks = compile(...args);
    installing = stage;
    before(hooks.shape, "head");
    return hooks;
  };
}

export const STAGES: Readonly<Record<string, () => void>> = {
  "a socket's handler": () => before(ClientConnection.prototype, "received"),
  "the turn of the next request": () => before(ClientConnection.prototype, "responded"),
  "the head of an answer": () => before(ResponseWriter.prototype, "head"),
  "the end of an answer": () => before(ResponseWriter.prototype, "end"),
  "a policy": inHook,
  "a backend's head": () => before(BackendCall.prototype, "head"),
  "a backend's bytes": () => before(BackendCall.prototype, "data"),
  "a backend's end": () => before(BackendCall.prototype, "end"),
  "a backend's parser": () => before(ResponseParser.prototype, "push"),
  "a backend's failure": () => before(BackendCall.prototype, "fail"),
  "the settling of a request": () => before(Delivery.prototype, "settle"),
  "a client that leaves": () => before(Delivery.prototype, "clientClosed"),
  "an upgrade": () => before(BackendCall.prototype, "upgraded"),
  "a tunnel": () => before(FrameCounter.prototype, "read"),
  "a timer": () => inTimers("every"),
  "a timeout": () => inTimers("after"),
  "a child's exit": () => before(StdioProcess.prototype, "stop"),
  "the end of a child's streams": () => before(StderrTail.prototype, "likelyCause"),
  "a child's line": () => before(LineSplitter.prototype, "push"),
  "nobody's callback": () => undefined,
  "nobody's promise": () => undefined,
};

if (process.env.INJECT_FAULTS === "yes") {
  const names = Object.keys(STAGES);
  for (const name of names) {
    installing = name;
    STAGES[name]?.();
  }
  let next = 0;
  process.on("SIGWINCH", () => {
    const stage = names[next++] ?? "";
    armed = stage;
    if (stage === "nobody's callback") setImmediate(boom, stage);
    if (stage === "nobody's promise") void Promise.resolve().then(() => boom(stage));
    process.stdout.write(`armed: ${stage}\n`);
  });
}
