/**
 * Implements tool search (`toolMode: search`). Clients see three tools that find, describe, and call the others.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import type { Steps } from "../../base/sliced-work.ts";
import type { WireTap } from "../../core/wire.ts";
import { elementsInSteps, find, findInSteps, member, slice, withMembers } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import {
  answerCall,
  type Call,
  type CallHandle,
  intercept,
  LateCall,
  ownCall,
  runMessageSteps,
  runSteps,
} from "../protocol/call.ts";
import { guardrailInterceptor } from "../protocol/guarded-call.ts";
import {
  asClientRequest,
  asServerMessage,
  type ClientMessage,
  type ClientNotification,
  type ClientRequest,
  editedRequest,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { isName } from "../protocol/message-rules.ts";
import type { McpProtocol } from "../protocol/protocol-version.ts";
import { asResult2026, copyEnvelope } from "../server-side/envelope-2026.ts";
import type { Upstream } from "../server-side/upstream.ts";
import { errorToFailure, FAILED_TARGETS, GATEWAY_INFO } from "./merge-responses.ts";
import type { Names } from "./names.ts";
import type { Router, RouterOutcome, TargetChange } from "./router.ts";

const PART = peerInput("mcp-server/part");
const TOOL = peerInput("mcp-server/tool");

const DEFAULT_FOUND = 10;
const MAX_FOUND = 50;
const MAX_SUMMARY_CHARS = 200;
const MAX_SEARCHED_PAGES = 100;
const MAX_SEARCHED_TOOLS = 20_000;
/** Limits one tool definition, because parsing it blocks the event loop. */
const SLICED_TOOLS = 100;

interface FoundTools {
  readonly tools: readonly SearchedTool[];
  readonly failed: Readonly<Record<string, string>>;
}

export class SearchRouter implements Router {
  readonly #inner: Router;
  readonly #protocol: McpProtocol;

  constructor(inner: Router, protocol: McpProtocol) {
    this.#inner = inner;
    this.#protocol = protocol;
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

  run(call: Call): CallHandle {
    const { method, params } = call.request;
    if (method === "tools/list") {
      const targets = this.upstreams.map(({ target }) => target);
      const send = (own: Call): CallHandle => this.#answer(own, `{"tools":${SEARCH_TOOLS_JSON}}`);
      return intercept(call, [guardrailInterceptor], send, targets);
    }
    if (method === "tools/call") {
      const args = (params.arguments ?? {}) as Readonly<Record<string, unknown>>;
      if (params.name === FIND_TOOLS && typeof args.query === "string" && args.query.length > MAX_QUERY_CHARS)
        return this.#respond(
          call,
          `\`query\` is longer than ${MAX_QUERY_CHARS} characters: say in a few words what you want to do`,
          true,
        );
      if (params.name === FIND_TOOLS) return this.#listed(call, (found) => foundText(found, args));
      if (params.name === DESCRIBE_TOOL && isName(args.name)) {
        const { name } = args;
        return this.#listed(call, (found) => describedText(found, name));
      }
      if (params.name === DESCRIBE_TOOL)
        return this.#respond(call, "`name` must be the name of a tool that find_tools named", true);
      if (params.name === CALL_TOOL)
        return this.#respond(call, "`name` must be the name of a tool that find_tools named", true);
    }
    return this.#inner.run(call);
  }

  notify(message: ClientNotification, wire?: WireTap): void {
    this.#inner.notify(message, wire);
  }

  notificationText(upstream: Upstream, message: ServerMessage): string | undefined {
    const text = this.#inner.notificationText(upstream, message);
    // The three search tools never change, so the notification is dropped.
    return message.method === "notifications/tools/list_changed" ? undefined : text;
  }

  change(change: TargetChange): readonly Upstream[] {
    return this.#inner.change(change);
  }

  #listed(call: Call, toText: (found: FoundTools) => Steps<{ text: string; isError: boolean }>): CallHandle {
    const running = new LateCall();
    const tools: SearchedTool[] = [];
    const failed: Record<string, string> = {};
    const readPage = (cursor: string | undefined, page: number): void => {
      const params = { ...copyEnvelope(call.request), ...(cursor === undefined ? {} : { cursor }) };
      running.current = this.#inner.run(
        ownCall(asClientRequest("tools/list", JSON.stringify(params)), {
          headers: call.headers,
          wire: call.wire,
          caller: call.caller,
          access: call.access,
          guardrails: call.guardrails,
          failed: (failure) => call.failed(failure),
          answered: (message) => {
            if (running.isCancelled) return;
            if (message.kind !== "result") {
              call.failed(errorToFailure(message));
              return;
            }
            runMessageSteps(
              message,
              () => readTools(message.text, tools, failed),
              (next) => {
                if (running.isCancelled) return;
                if (next !== undefined && page < MAX_SEARCHED_PAGES) readPage(next, page + 1);
                else
                  runSteps(
                    tools.length > SLICED_TOOLS,
                    () => toText({ tools, failed }),
                    ({ text, isError }) => this.#respond(call, text, isError),
                    (failure) => call.failed(failure),
                  );
              },
              (failure) => call.failed(failure),
            );
          },
        }),
      );
    };
    readPage(undefined, 1);
    return running;
  }

  #respond(call: Call, text: string, isError: boolean): CallHandle {
    const result = { content: [{ type: "text", text }], ...(isError ? { isError } : {}) };
    return this.#answer(call, JSON.stringify(result));
  }

  #answer(call: Call, result: string): CallHandle {
    const message = asServerMessage(resultText("0", result));
    return answerCall(
      call,
      this.#protocol === "2026" ? asResult2026(message, call.request.method, GATEWAY_INFO) : message,
    );
  }
}

function* readTools(text: string, tools: SearchedTool[], failed: Record<string, string>): Steps<string | undefined> {
  const list = yield* findInSteps(text, 0, "result", "tools");
  for (const item of list ? yield* elementsInSteps(text, list.start) : []) {
    if (tools.length >= MAX_SEARCHED_TOOLS) break;
    if (item.end - item.start > TOOL.maxBytes) continue;
    tools.push(readJson(TOOL, slice(text, item)) as SearchedTool);
    yield;
  }
  const meta = yield* findInSteps(text, 0, "result", "_meta", FAILED_TARGETS);
  if (meta) Object.assign(failed, readJson(PART, slice(text, meta)));
  const next = yield* findInSteps(text, 0, "result", "nextCursor");
  const cursor = next && readJson(PART, slice(text, next));
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
    const summary = firstSentence(description ?? title, MAX_SUMMARY_CHARS);
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

export const FIND_TOOLS = "find_tools";
export const DESCRIBE_TOOL = "describe_tool";
export const CALL_TOOL = "call_tool";

/** Limits the query, because matching its words blocks the event loop. */
export const MAX_QUERY_CHARS = 1_000;

export const SEARCH_TOOLS_JSON = JSON.stringify([
  {
    name: FIND_TOOLS,
    description:
      "Finds tools by what they do. Many tools are available that are not listed here: search before you decide that something cannot be done.",
    inputSchema: {
      type: "object",
      properties: {
        query: {
          type: "string",
          maxLength: MAX_QUERY_CHARS,
          description: "What you want to do, in a few words. Empty: all tools.",
        },
        limit: { type: "integer", minimum: 1, maximum: 50, default: 10 },
        offset: { type: "integer", minimum: 0, default: 0 },
      },
    },
    annotations: { readOnlyHint: true },
  },
  {
    name: DESCRIBE_TOOL,
    description: "The full description and the input schema of a tool that find_tools named.",
    inputSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
    annotations: { readOnlyHint: true },
  },
  {
    name: CALL_TOOL,
    description: "Calls a tool that find_tools named. The arguments must fit the schema that describe_tool shows.",
    inputSchema: {
      type: "object",
      properties: { name: { type: "string" }, arguments: { type: "object", additionalProperties: true } },
      required: ["name"],
    },
  },
]);

/** Replaces calls of `call_tool` with the calls that their arguments describe. */
export function unwrapped(parsed: ClientMessage | readonly ClientMessage[]): ClientMessage | readonly ClientMessage[] {
  return Array.isArray(parsed)
    ? (parsed as readonly ClientMessage[]).map(unwrappedMessage)
    : unwrappedMessage(parsed as ClientMessage);
}

export function unwrappedMessage<Message extends ClientMessage>(message: Message): Message | ClientRequest {
  return message.kind === "request" ? unwrappedCall(message) : message;
}

/** A call without a valid tool name stays unchanged. */
export function unwrappedCall(request: ClientRequest): ClientRequest {
  const { params, text } = request;
  if (request.method !== "tools/call" || params.name !== CALL_TOOL) return request;
  const outer = params.arguments as { readonly name?: unknown; readonly arguments?: unknown } | null | undefined;
  const { name } = outer ?? {};
  if (!isName(name) || name === CALL_TOOL) return request;
  const span = find(text, 0, "params");
  const wrapped = span && member(text, span.start, "arguments");
  if (!span || !wrapped) return request;
  const inner = member(text, wrapped.start, "arguments");
  const changes = new Map<string, string | undefined>([
    ["name", JSON.stringify(name)],
    ["arguments", inner && slice(text, inner)],
  ]);
  const { arguments: _wrapped, ...rest } = params;
  const meant = { ...rest, name, ...(inner ? { arguments: outer?.arguments } : {}) };
  return editedRequest(request, [{ start: span.start, end: span.end, text: withMembers(text, span, changes) }], meant);
}

export interface SearchedTool {
  readonly name: string;
  readonly title?: unknown;
  readonly description?: unknown;
  readonly inputSchema?: unknown;
}

const MAX_QUESTION_WORDS = 32;
/** Limits the search to the start of a description, which usually states the purpose of the tool. */
const MAX_READ_CHARS = 4_000;
/** Limits the argument names that are searched per tool, because a server may define thousands. */
const MAX_READ_ARGUMENTS = 200;

const WEIGHTS = { name: 4, title: 3, argument: 1.5, description: 1 } as const;

/**
 * Returns the tools that match any searched word, best match first. Without words, it returns all tools in list order.
 */
export function* searchTools<Tool extends SearchedTool>(tools: readonly Tool[], question: string): Steps<Tool[]> {
  const wanted = [...new Set(splitWords(question))].slice(0, MAX_QUESTION_WORDS);
  if (wanted.length === 0) return [...tools];
  const weighed: { readonly tool: Tool; readonly weights: readonly number[] }[] = [];
  const having = wanted.map(() => 0);
  for (const tool of tools) {
    const words = wordWeights(tool);
    const weights = wanted.map((word) => matchWeight(words, word));
    weights.forEach((weight, i) => {
      if (weight > 0) having[i] = (having[i] ?? 0) + 1;
    });
    if (weights.some((weight) => weight > 0)) weighed.push({ tool, weights });
    yield;
  }
  const rarity = having.map((count) => Math.log(1 + tools.length / Math.max(1, count)));
  return weighed
    .map(({ tool, weights }) => ({
      tool,
      score: weights.reduce((sum, weight, i) => sum + weight * (rarity[i] ?? 0), 0),
    }))
    .sort((a, b) => b.score - a.score)
    .map(({ tool }) => tool);
}

export function firstSentence(description: unknown, maxChars: number): string {
  if (typeof description !== "string") return "";
  const line = description.slice(0, MAX_READ_CHARS).replace(/\s+/g, " ").trim();
  const sentence = /^.*?[.!?](?=\s|$)/.exec(line)?.[0] ?? line;
  return sentence.length <= maxChars ? sentence : `${sentence.slice(0, maxChars - 1)}…`;
}

function wordWeights(tool: SearchedTool): Map<string, number> {
  const words = new Map<string, number>();
  const add = (text: unknown, weight: number): void => {
    if (typeof text !== "string") return;
    for (const word of splitWords(text.slice(0, MAX_READ_CHARS)))
      words.set(word, Math.max(words.get(word) ?? 0, weight));
  };
  add(tool.description, WEIGHTS.description);
  const properties = (tool.inputSchema as { properties?: unknown } | null | undefined)?.properties;
  if (typeof properties === "object" && properties !== null)
    for (const name of Object.keys(properties).slice(0, MAX_READ_ARGUMENTS)) add(name, WEIGHTS.argument);
  add(tool.title, WEIGHTS.title);
  add(tool.name, WEIGHTS.name);
  return words;
}

/** A prefix match counts half, so `issue` finds `issues`. */
function matchWeight(words: ReadonlyMap<string, number>, wanted: string): number {
  const same = words.get(wanted);
  if (same !== undefined) return same;
  if (wanted.length < 3) return 0;
  let best = 0;
  for (const [word, weight] of words)
    if (weight > best && word.length >= 3 && (word.startsWith(wanted) || wanted.startsWith(word))) best = weight;
  return best / 2;
}

function splitWords(text: string): string[] {
  return (
    text
      .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? []
  );
}
