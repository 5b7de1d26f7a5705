/**
 * Finds the target of a name without a prefix. Tools and prompts are looked up in the targets' lists. A resource may
 * match a template, so the targets are tried in order.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import type { Named } from "../protocol/access.ts";
import { deniedName, LISTS, unknownName } from "../protocol/access.ts";
import { type Call, type CallHandle, failCall, forwardedCall, LateCall, ownCall, runSteps } from "../protocol/call.ts";
import { asClientRequest } from "../protocol/json-rpc.ts";
import { itemName, readListContent } from "../protocol/list-content.ts";
import { copyEnvelope } from "../server-side/envelope-2026.ts";
import type { Upstream } from "../server-side/upstream.ts";
import { requestAll, type TargetResponse, totalChars } from "./merge-responses.ts";

const PART = peerInput("mcp-server/part");

const MAX_PAGES = 20;

/** Sends the call to the target that was found. */
export type Send = (upstream: Upstream, call: Call) => CallHandle;

export class NameIndex {
  readonly #present: () => readonly Upstream[];
  readonly #owners = new Map<string, Upstream>();
  readonly #complete = new Set<string>();

  constructor(present: () => readonly Upstream[]) {
    this.#present = present;
  }

  get #upstreams(): readonly Upstream[] {
    return this.#present();
  }

  clear(): void {
    this.#owners.clear();
    this.#complete.clear();
  }

  run(call: Call, about: Named, mayAsk: (upstream: Upstream) => boolean, send: Send): CallHandle {
    const only = this.#upstreams.length === 1 ? this.#upstreams[0] : undefined;
    if (only && mayAsk(only)) {
      call.routed?.(only.target);
      return send(only, call);
    }
    if (about.kind === "resource") return this.#inTurn(call, about, this.#upstreams.filter(mayAsk), send);
    const method = about.kind === "tool" ? "tools/list" : "prompts/list";
    const running = new LateCall();
    this.#load(
      call,
      method,
      (done) => {
        running.current = done;
      },
      () => {
        const owner = this.#owners.get(`${method} ${about.name}`);
        if (owner) call.routed?.(owner.target);
        if (!owner) call.failed(unknownName(about.kind, about.name));
        else if (mayAsk(owner)) running.current = send(owner, call);
        else call.failed(deniedName(about, owner.target.name));
      },
    );
    return running;
  }

  #load(call: Call, method: string, started: (running: CallHandle) => void, done: () => void): void {
    if (this.#complete.has(method)) {
      done();
      return;
    }
    const envelope = copyEnvelope(call.request);
    const readPage = (asked: readonly { upstream: Upstream; cursor: string | undefined }[], page: number): void => {
      const parts = asked.map(({ upstream, cursor }) => ({
        upstream,
        request: asClientRequest(method, JSON.stringify({ ...envelope, ...(cursor === undefined ? {} : { cursor }) })),
      }));
      started(
        requestAll(ownCall(call.request, { headers: call.headers, isLive: true }), parts, (outcomes) =>
          runSteps(
            totalChars(outcomes) > SLICED_BYTES,
            () => this.#learn(method, outcomes),
            (more) => {
              if (more.length > 0 && page < MAX_PAGES) readPage(more, page + 1);
              else {
                // A failed target may have the name, so the lists are read again for the next call.
                if (outcomes.every(({ result }) => result)) this.#complete.add(method);
                done();
              }
            },
            (failure) => call.failed(failure),
          ),
        ),
      );
    };
    readPage(
      this.#upstreams.map((upstream) => ({ upstream, cursor: undefined })),
      1,
    );
  }

  *#learn(method: string, outcomes: readonly TargetResponse[]): Steps<{ upstream: Upstream; cursor: string }[]> {
    const list = LISTS[method] as (typeof LISTS)[string];
    const more: { upstream: Upstream; cursor: string }[] = [];
    for (const { upstream, result } of outcomes) {
      if (!result) continue;
      const { text } = result;
      const { members, items = [] } = yield* readListContent(result, list);
      for (const item of items) {
        const key = `${method} ${itemName(text, item)}`;
        const known = this.#owners.get(key);
        if (!known || this.#upstreams.indexOf(upstream) < this.#upstreams.indexOf(known))
          this.#owners.set(key, upstream);
        yield;
      }
      const cursor = members.find(({ key }) => key === "nextCursor");
      const value = cursor && readJson(PART, slice(text, cursor));
      if (typeof value === "string") more.push({ upstream, cursor: value });
    }
    return more;
  }

  /** Tries the targets in order until one returns a result. */
  #inTurn(call: Call, about: Named, upstreams: readonly Upstream[], send: Send): CallHandle {
    const [first, ...rest] = upstreams;
    if (!first) return failCall(call, unknownName(about.kind, about.name));
    const running = new LateCall();
    call.routed?.(first.target);
    running.current = send(
      first,
      forwardedCall(call, {
        answered: (message) => {
          if (message.kind === "result" || rest.length === 0) call.answered(message);
          else running.current = this.#inTurn(call, about, rest, send);
        },
        failed: (failure) => {
          // A rejected request must not reach another target.
          if (rest.length === 0 || failure.error === "authorization_denied") call.failed(failure);
          else running.current = this.#inTurn(call, about, rest, send);
        },
      }),
    );
    return running;
  }
}
