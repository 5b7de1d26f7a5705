/**
 * Resolves the name of a backend for each connection, so that DNS changes take effect. While the resolver fails or
 * hangs, the last good addresses are used for up to an hour. If the name no longer exists, they are discarded, because
 * they may be reassigned.
 */
import { lookup as systemLookup } from "node:dns";
import type { LookupFunction } from "node:net";
import type { Clock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";

export interface Address {
  readonly address: string;
  readonly family: number;
}

export type Resolve = (name: string, done: (error: Error | null, addresses: readonly Address[]) => void) => void;

/** Shorter than the system's resolver, which may retry for half a minute. */
const LIMIT_MS = 5_000;
const RESPONSE = peerInput("name-server/response");
const LAST_GOOD_MS = 60 * 60_000;

type Callback = (error: Error | null, addresses: readonly Address[]) => void;

/**
 * Concurrent lookups share one query, because the system runs few queries at a time, and queries to a hanging resolver
 * could block others.
 */
export function createLookup(clock: Clock, resolve: Resolve = systemResolve): LookupFunction {
  let lastGood: readonly Address[] = [];
  let goodSinceMs = 0;
  let waiting: Callback[] = [];
  let queryState: "idle" | "running" | "hanging" = "idle";

  function startQuery(name: string): void {
    queryState = "running";
    const timer = clock.after(LIMIT_MS, () => {
      queryState = "hanging";
      settle(tooSlow(name));
    });
    resolve(name, (error, addresses) => {
      timer.cancel();
      queryState = "idle";
      if (!error && addresses.length > 0) {
        lastGood = addresses.length > RESPONSE.maxItems ? addresses.slice(0, RESPONSE.maxItems) : addresses;
        goodSinceMs = clock.monotonicMs();
      } else if (!error || isNotFound(error)) lastGood = [];
      settle(error ?? (addresses.length > 0 ? null : noAddress(name)));
    });
  }

  function settle(error: Error | null): void {
    const callbacks = waiting;
    waiting = [];
    for (const respond of callbacks) finish(respond, error);
  }

  function finish(respond: Callback, error: Error | null): void {
    const serves = lastGood.length > 0 && clock.monotonicMs() - goodSinceMs < LAST_GOOD_MS;
    respond(serves ? null : error, serves ? lastGood : []);
  }

  return (name, options, callback) => {
    const respond = (error: Error | null, all: readonly Address[]): void => {
      const { family } = options;
      const fitting = family === 4 || family === 6 ? all.filter((one) => one.family === family) : all;
      const [first] = fitting;
      const failed = error ?? (first ? null : noAddress(name));
      if (options.all) callback(failed, [...fitting]);
      else callback(failed, first?.address ?? "", first?.family ?? 0);
    };
    if (queryState === "hanging") {
      finish(respond, tooSlow(name));
      return;
    }
    waiting.push(respond);
    if (queryState === "idle") startQuery(name);
  };
}

function isNotFound(error: NodeJS.ErrnoException): boolean {
  return error.code === "ENOTFOUND";
}

function noAddress(name: string): Error {
  return Object.assign(new Error(`${name} has no address`), { code: "ENOTFOUND" });
}

function tooSlow(name: string): Error {
  return Object.assign(new Error(`no address of ${name} within ${LIMIT_MS} ms`), { code: "EAI_AGAIN" });
}

function systemResolve(name: string, done: Parameters<Resolve>[1]): void {
  systemLookup(name, { all: true }, (error, addresses) => done(error, addresses ?? []));
}
