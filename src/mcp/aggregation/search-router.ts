/**
 * A router whose clients search for tools instead of reading all of them (`toolMode: search`). What can be found is
 * what the list would show this very request: the same targets, names and rules, read anew for each question.
 */

import type { Steps } from "../../base/turns.ts";
import type { McpAccess } from "../../core/facts.ts";
import type { WireTap } from "../../core/wire.ts";
import { slice } from "../../json/json-text.ts";
import { elementsInSteps, findInSteps } from "../../json/text-steps.ts";
import { type Call, NOTHING_RUNS, type Running, refuseQuestion } from "../protocol/call.ts";
import type { Era } from "../protocol/era.ts";
import {
  asClientRequest,
  asServerMessage,
  type ClientNotification,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { largeOrSmall, whenWorked } from "../protocol/large-or-small.ts";
import { isName } from "../protocol/message-rules.ts";
import { asModernResult, envelopeOf } from "../server-side/modern-text.ts";
import type { Upstream } from "../server-side/upstream.ts";
import { errorOf } from "./gather.ts";
import { FAILED_TARGETS, GATEWAY_INFO } from "./merge.ts";
import type { Names } from "./names.ts";
import type { Router, RouterOutcome } from "./router.ts";
import { CALL_TOOL, DESCRIBE_TOOL, FIND_TOOLS, MAX_QUERY_CHARS, SEARCH_TOOLS_JSON } from "./search-tools.ts";
import type { TargetChange } from "./target-change.ts";
import { type SearchedTool, searchTools, summaryOf } from "./tool-search.ts";

const DEFAULT_FOUND = 10;
const MAX_FOUND = 50;
const MAX_SUMMARY_CHARS = 200;
/** A list of more pages is not read to its end. */
const MAX_SEARCHED_PAGES = 100;
const MAX_SEARCHED_TOOLS = 20_000;
/** Of one tool, which is parsed in one turn. */
const MAX_SEARCHED_CHARS = 1024 * 1024;
/** So many are searched at once: 1 ms or so. */
const SLICED_TOOLS = 100;

interface FoundTools {
  readonly tools: readonly SearchedTool[];
  /** Targets that did not answer, with the reason. */
  readonly failed: Readonly<Record<string, string>>;
}

export class SearchRouter implements Router {
  readonly #inner: Router;
  readonly #era: Era;

  constructor(inner: Router, era: Era) {
    this.#inner = inner;
    this.#era = era;
  }

  get upstreams(): readonly Upstream[] {
    return this.#inner.upstreams;
  }

  get names(): Names {
    return this.#inner.names;
  }

  open(done: (outcome: RouterOutcome) => void, wire?: WireTap): void {
    this.#inner.open(done, wire);
  }

  run(call: Call, access: McpAccess | undefined): Running {
    const { method, params } = call.request;
    if (method === "tools/list") return this.#answer(call, `{"tools":${SEARCH_TOOLS_JSON}}`);
    if (method === "tools/call") {
      const args = (params.arguments ?? {}) as Readonly<Record<string, unknown>>;
      if (params.name === FIND_TOOLS && typeof args.query === "string" && args.query.length > MAX_QUERY_CHARS)
        return this.#say(
          call,
          `\`query\` is longer than ${MAX_QUERY_CHARS} characters: say in a few words what you want to do`,
          true,
        );
      if (params.name === FIND_TOOLS) return this.#listed(call, access, (found) => foundText(found, args));
      if (params.name === DESCRIBE_TOOL && isName(args.name)) {
        const { name } = args;
        return this.#listed(call, access, (found) => describedText(found, name));
      }
      if (params.name === DESCRIBE_TOOL)
        return this.#say(call, "`name` must be the name of a tool that find_tools named", true);
      if (params.name === CALL_TOOL)
        return this.#say(call, "`name` must be the name of a tool that find_tools named", true);
    }
    return this.#inner.run(call, access);
  }

  notify(message: ClientNotification, wire?: WireTap): void {
    this.#inner.notify(message, wire);
  }

  notificationText(upstream: Upstream, message: ServerMessage): string | undefined {
    const text = this.#inner.notificationText(upstream, message);
    // The three tools never change.
    return message.method === "notifications/tools/list_changed" ? undefined : text;
  }

  change(change: TargetChange): readonly Upstream[] {
    return this.#inner.change(change);
  }

  /** Reads all pages of the list that the client would get, then says what is made of it. */
  #listed(
    call: Call,
    access: McpAccess | undefined,
    told: (found: FoundTools) => Steps<{ text: string; isError: boolean }>,
  ): Running {
    const running: { current: Running; isCancelled: boolean } = { current: NOTHING_RUNS, isCancelled: false };
    const tools: SearchedTool[] = [];
    const failed: Record<string, string> = {};
    const readPage = (cursor: string | undefined, page: number): void => {
      const params = { ...envelopeOf(call.request), ...(cursor === undefined ? {} : { cursor }) };
      running.current = this.#inner.run(
        {
          request: asClientRequest("tools/list", JSON.stringify(params)),
          headers: call.headers,
          wire: call.wire,
          caller: call.caller,
          notified: () => undefined,
          asked: refuseQuestion,
          failed: (failure) => call.failed(failure),
          answered: (message) => {
            if (running.isCancelled) return;
            if (message.kind !== "result") {
              call.failed(errorOf(message));
              return;
            }
            largeOrSmall(
              message,
              () => readTools(message.text, tools, failed),
              (next) => {
                if (running.isCancelled) return;
                if (next !== undefined && page < MAX_SEARCHED_PAGES) readPage(next, page + 1);
                else
                  whenWorked(
                    tools.length > SLICED_TOOLS,
                    () => told({ tools, failed }),
                    ({ text, isError }) => this.#say(call, text, isError),
                    (failure) => call.failed(failure),
                  );
              },
              (failure) => call.failed(failure),
            );
          },
        },
        access,
      );
    };
    readPage(undefined, 1);
    return {
      cancel: (reason) => {
        running.isCancelled = true;
        running.current.cancel(reason);
      },
    };
  }

  #say(call: Call, text: string, isError: boolean): Running {
    const result = { content: [{ type: "text", text }], ...(isError ? { isError } : {}) };
    return this.#answer(call, JSON.stringify(result));
  }

  #answer(call: Call, result: string): Running {
    const message = asServerMessage(resultText("0", result));
    call.answered(this.#era === "modern" ? asModernResult(message, call.request.method, GATEWAY_INFO) : message);
    return NOTHING_RUNS;
  }
}

/** Adds what a page of the list has; the cursor of the next one. */
function* readTools(text: string, tools: SearchedTool[], failed: Record<string, string>): Steps<string | undefined> {
  const list = yield* findInSteps(text, 0, "result", "tools");
  for (const item of list ? yield* elementsInSteps(text, list.start) : []) {
    if (tools.length >= MAX_SEARCHED_TOOLS) break;
    if (item.end - item.start > MAX_SEARCHED_CHARS) continue;
    tools.push(JSON.parse(slice(text, item)) as SearchedTool);
    yield;
  }
  const meta = yield* findInSteps(text, 0, "result", "_meta", FAILED_TARGETS);
  if (meta) Object.assign(failed, JSON.parse(slice(text, meta)));
  const next = yield* findInSteps(text, 0, "result", "nextCursor");
  const cursor = next && (JSON.parse(slice(text, next)) as unknown);
  return typeof cursor === "string" ? cursor : undefined;
}

function* foundText(
  { tools, failed }: FoundTools,
  args: Readonly<Record<string, unknown>>,
): Steps<{ text: string; isError: boolean }> {
  const found = yield* searchTools(tools, typeof args.query === "string" ? args.query : "");
  const limit = whole(args.limit, 1, MAX_FOUND, DEFAULT_FOUND);
  const offset = whole(args.offset, 0, Number.MAX_SAFE_INTEGER, 0);
  const shown = found.slice(offset, offset + limit);
  const lines = shown.map(({ name, description, title }) => {
    const summary = summaryOf(description ?? title, MAX_SUMMARY_CHARS);
    return summary === "" ? `- ${name}` : `- ${name}: ${summary}`;
  });
  const left = found.length - offset - shown.length;
  const rest = left > 0 ? [`${left} more: ask with offset ${offset + shown.length}, or with other words.`] : [];
  const none = shown.length === 0 ? ["No tool fits. Try other words, or an empty query for all tools."] : [];
  const absent = Object.entries(failed).map(([target, reason]) => `The tools of ${target} are missing: it ${reason}.`);
  return { text: [...lines, ...rest, ...none, ...absent].join("\n"), isError: false };
}

function* describedText({ tools }: FoundTools, name: string): Steps<{ text: string; isError: boolean }> {
  const tool = tools.find((one) => one.name === name);
  if (tool === undefined) return { text: `Unknown tool: ${name.slice(0, 200)}`, isError: true };
  return { text: JSON.stringify(tool), isError: false };
}

function whole(value: unknown, least: number, most: number, fallback: number): number {
  return typeof value === "number" && Number.isInteger(value) ? Math.min(most, Math.max(least, value)) : fallback;
}
