/**
 * Relays retries of suspended calls between replicas. A call of a 2026-07-28 client at a 2025 server is suspended while
 * it waits for input (`input_required`), and the client's retry may arrive at another replica.
 */
import { createHash, randomBytes } from "node:crypto";
import type { Clock, Timer } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { BusChannel } from "../../store/store.ts";
import { type Call, type CallHandle, type Failure, NO_CALL, refuseQuestion, serverFailure } from "../protocol/call.ts";
import { asServerMessage, INVALID_PARAMS, parseClientMessage } from "../protocol/json-rpc.ts";
import type { ReplicaBus, ReplicaMessage } from "./replica-bus.ts";

const REPLICA_MESSAGE = peerInput("replica/mcp-message");

/** A call with a larger response fails, and larger notifications are dropped. */
const MAX_RELAYED_CHARS = 2 * 1024 * 1024;
const PROBE_MS = 5_000;
/** The call fails after this many consecutive failed checks. */
const FAILED_PROBES = 2;

export const UNKNOWN_STATE: Failure = {
  code: INVALID_PARAMS,
  status: 200,
  message: "Invalid params: unknown or expired requestState",
};

export interface RetryRelay {
  /** Registers a suspended call. `resume` is called with a retry that arrived at another replica. */
  wait(token: string, resume: (call: Call) => CallHandle): { close(): void };
  resume(token: string, call: Call): CallHandle;
}

export interface RetryRelayOptions {
  readonly bus: ReplicaBus;
  readonly clock: Clock;
  requestTimeoutMs(): number;
}

interface Retry {
  readonly reply: string;
  readonly request: string;
}

export interface RetryRelays {
  /** Counts the calls that wait for a retry, and those that run for a retry that another process received. */
  readonly suspendedCalls: number;
  relay(target: { readonly name: string }, owner: string): RetryRelay;
}

/** The channel name is derived from the owner and the target, so the token of another user matches no call. */
export function createRetryRelays(env: RetryRelayOptions, backend: string): RetryRelays {
  const suspended = new Map<string, SuspendedCallListener>();
  const relay = (target: { readonly name: string }, owner: string): RetryRelay => {
    const callChannel = (token: string): string =>
      `turn/${createHash("sha256")
        .update(JSON.stringify([backend, target.name, owner, token]))
        .digest("hex")}`;
    return {
      wait(token, resume) {
        const channel = callChannel(token);
        const listener = new SuspendedCallListener(env.bus, channel, resume, () => suspended.delete(channel));
        suspended.set(channel, listener);
        return listener;
      },
      resume(token, call) {
        const channel = callChannel(token);
        // After a reload, the client has another group, and the call waits in the earlier one.
        const local = suspended.get(channel);
        if (local) return local.resume(call);
        if (env.bus.isThere) return new RelayedRetry(env, channel, call);
        call.failed(UNKNOWN_STATE);
        return NO_CALL;
      },
    };
  };
  return {
    relay,
    get suspendedCalls() {
      return suspended.size;
    },
  };
}

class SuspendedCallListener {
  readonly #bus: ReplicaBus;
  readonly #channel: BusChannel | undefined;
  readonly resume: (call: Call) => CallHandle;
  readonly #ended: () => void;
  #running: CallHandle | undefined = undefined;
  #isTaken = false;

  constructor(bus: ReplicaBus, channel: string, resume: (call: Call) => CallHandle, ended: () => void) {
    this.#bus = bus;
    this.resume = resume;
    this.#ended = ended;
    this.#channel = bus.listen(channel, (message) => this.#received(message));
  }

  /** Stops listening for retries. A call that another replica resumed stays connected until it ends. */
  close(): void {
    if (!this.#isTaken) this.#end();
  }

  #end(): void {
    this.#channel?.close();
    this.#ended();
  }

  #received({ kind, text = "" }: ReplicaMessage): void {
    if (kind === "cancel" && this.#running !== undefined) {
      this.#running.cancel("the client closed the connection");
      this.#end();
    }
    if (kind !== "retry" || this.#isTaken) return;
    const { reply, request: requestText } = readJson(REPLICA_MESSAGE, text) as Retry;
    const request = parseClientMessage(requestText);
    if (request.kind !== "request") return;
    this.#isTaken = true;
    const end = (message: ReplicaMessage): void => {
      this.#end();
      const isTooLarge = (message.text?.length ?? 0) > MAX_RELAYED_CHARS;
      void this.#bus.send(reply, isTooLarge ? failed(serverFailure("the response is too large")) : message);
    };
    this.#running = this.resume({
      request,
      notified: (message) => {
        if (message.text.length <= MAX_RELAYED_CHARS)
          void this.#bus.send(reply, { kind: "notified", text: message.text });
      },
      asked: refuseQuestion,
      answered: (message) => end({ kind: "answered", text: message.text }),
      failed: (failure) => end(failed(failure)),
    });
  }
}

class RelayedRetry implements CallHandle {
  readonly #env: RetryRelayOptions;
  readonly #channel: string;
  readonly #call: Call;
  readonly #replies: BusChannel | undefined;
  readonly #timers: readonly Timer[];
  #failedProbes = 0;
  #isOver = false;

  constructor(env: RetryRelayOptions, channel: string, call: Call) {
    this.#env = env;
    this.#channel = channel;
    this.#call = call;
    const reply = `reply/${randomBytes(16).toString("hex")}`;
    this.#replies = env.bus.listen(reply, (message) => this.#received(message));
    this.#timers = [
      env.clock.after(env.requestTimeoutMs(), () => {
        this.cancel();
        call.failed(serverFailure("the server did not answer in time", "backend_timeout"));
      }),
      env.clock.every(PROBE_MS, () => void this.#probe()),
    ];
    void this.#send(reply);
  }

  cancel(): void {
    if (!this.#end()) return;
    void this.#env.bus.send(this.#channel, { kind: "cancel" });
  }

  async #send(reply: string): Promise<void> {
    await this.#replies?.ready;
    if (this.#isOver) return;
    const retry: Retry = { reply, request: this.#call.request.text };
    const isReceived = (await this.#env.bus.send(this.#channel, { kind: "retry", text: JSON.stringify(retry) })) > 0;
    if (!isReceived && this.#end()) this.#call.failed(UNKNOWN_STATE);
  }

  async #probe(): Promise<void> {
    const isThere = (await this.#env.bus.send(this.#channel, { kind: "look" })) > 0;
    this.#failedProbes = isThere ? 0 : this.#failedProbes + 1;
    if (this.#failedProbes >= FAILED_PROBES && this.#end())
      this.#call.failed(serverFailure("the replica that ran the call is gone"));
  }

  #received({ kind, text = "" }: ReplicaMessage): void {
    if (this.#isOver) return;
    if (kind === "notified") this.#call.notified(asServerMessage(text));
    else if (kind === "answered" && this.#end()) this.#call.answered(asServerMessage(text));
    else if (kind === "failed" && this.#end()) this.#call.failed(readJson(REPLICA_MESSAGE, text) as Failure);
  }

  #end(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#replies?.close();
    for (const timer of this.#timers) timer.cancel();
    return true;
  }
}

function failed(failure: Failure): ReplicaMessage {
  return { kind: "failed", text: JSON.stringify(failure) };
}
