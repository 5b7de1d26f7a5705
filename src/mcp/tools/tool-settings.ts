/**
 * Compiles the tool settings of a target, which define the tools that clients see and the arguments that the gateway
 * fills.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Steps } from "../../base/sliced-work.ts";
import type { AttributeSource, Expression } from "../../cel/expression.ts";
import { elements, find, insertMembers, member, slice, splice, withMembers } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { type Edit, foldCase, type Span } from "../../json/syntax.ts";
import type { GuardWebhook } from "../../llm/guards/guard-services.ts";
import type { Logger } from "../../record/log/logger.ts";
import { type ClientRequest, editedRequest } from "../protocol/json-rpc.ts";
import type { Target } from "../server-side/target.ts";
import type { ArgumentOverride, ToolsConfig } from "../server-side/target-config.ts";
import { Quarantine } from "./quarantine.ts";
import type { ToolLock } from "./tool-lock.ts";

const OWN_MESSAGE = peerInput("gateway/mcp-message");
const PART = peerInput("mcp-server/part");

export interface OfferedTool {
  readonly name: string;
  readonly arguments: readonly CompiledArgument[];
  readonly timeoutMs: number | undefined;
}

export interface ResultGuard {
  /** Returns the masked parts, or undefined to reject them. */
  checked(parts: readonly string[]): Steps<readonly string[] | undefined>;
  readonly refusal: string;
}

export interface ExternalGuards {
  readonly guards: readonly GuardWebhook[];
  /** The text for messages that cannot be checked. */
  readonly refusal: string;
}

export interface ResultWatch {
  /** Returns the rules and actions that the guards would apply, but never the text. */
  found(parts: readonly string[]): Steps<readonly WatchFinding[]>;
  readonly unread: readonly WatchFinding[];
}

export interface WatchFinding {
  readonly rule: string;
  readonly action: "mask" | "reject";
}

export interface MessageGuards {
  readonly guard: ResultGuard | undefined;
  readonly watch: ResultWatch | undefined;
  /** Checks messages after `guard` and before `watch`. */
  readonly external: ExternalGuards | undefined;
}

export interface ToolSettings {
  readonly fingerprint: string;
  readonly lock: ToolLock | undefined;
  readonly resultGuards: MessageGuards;
  readonly argumentGuards: MessageGuards | undefined;
  called(shown: string): OfferedTool | undefined;
  /** Returns the name under which clients see the server's tool, or undefined if the tool is hidden. */
  shownName(name: string): string | undefined;
  /** Returns the JSON of the tool that clients receive, or undefined if the tool is hidden. */
  listed(text: string, item: Span, name: string): string | undefined;
}

interface CompiledOverride extends OfferedTool {
  readonly shown: string;
  readonly title: string | undefined;
  readonly description: string | undefined;
}

export interface ToolSettingsInput {
  readonly tools: ToolsConfig | undefined;
  readonly lock: ToolLock | undefined;
  readonly resultGuards: MessageGuards;
  readonly argumentGuards: MessageGuards | undefined;
  readonly key: string;
  cel(source: string): Expression;
}

export function compileToolSettings(input: ToolSettingsInput): ToolSettings {
  const { tools = {}, lock, resultGuards, argumentGuards, key, cel } = input;
  const overrides = lookupTable(
    Object.fromEntries(
      Object.entries(tools.override ?? {}).map(([name, one]): [string, CompiledOverride] => [
        name,
        {
          name,
          shown: one.name ?? name,
          title: one.title,
          description: one.description,
          timeoutMs: one.timeout ?? tools.timeout,
          arguments: Object.entries(one.arguments ?? {}).map(([argument, config]) =>
            compileArgument(argument, config, cel),
          ),
        },
      ]),
    ),
  );
  const byShown = new Map(Object.values(overrides).map((one) => [one.shown, one]));
  const allow = tools.allow?.map(wildcard);
  const deny = (tools.deny ?? []).map(wildcard);
  const isOffered = (name: string): boolean =>
    (allow === undefined || allow.some((pattern) => pattern.test(name))) && !deny.some((pattern) => pattern.test(name));

  function called(shown: string): OfferedTool | undefined {
    const renamed = byShown.get(shown);
    if (renamed) return isOffered(renamed.name) ? renamed : undefined;
    // A renamed tool cannot be called by its old name.
    if (overrides[shown] !== undefined || !isOffered(shown)) return undefined;
    return { name: shown, arguments: [], timeoutMs: tools.timeout };
  }

  function shownName(name: string): string | undefined {
    const shown = overrides[name]?.shown ?? name;
    // If another tool was renamed to this name, this tool cannot be called, so it is hidden.
    return called(shown)?.name === name ? shown : undefined;
  }

  return {
    fingerprint: JSON.stringify([tools, lock?.fingerprint ?? null, key]),
    lock,
    resultGuards,
    argumentGuards,
    called,
    shownName,
    listed(text, item, name) {
      if (shownName(name) === undefined) return undefined;
      const override = overrides[name];
      return override === undefined ? slice(text, item) : shownTool(text, item, override);
    },
  };
}

function shownTool(text: string, item: Span, override: CompiledOverride): string {
  const own = slice(text, item);
  const edits: Edit[] = [];
  const added: string[] = [];
  const put = (key: string, value: string | undefined): void => {
    if (value === undefined) return;
    const span = member(own, 0, key);
    if (span) edits.push({ start: span.start, end: span.end, text: JSON.stringify(value) });
    else added.push(`${JSON.stringify(key)}:${JSON.stringify(value)}`);
  };
  put("name", override.shown);
  put("title", override.title);
  put("description", override.description);
  const schema = override.arguments.length === 0 ? undefined : member(own, 0, "inputSchema");
  if (schema) edits.push({ start: schema.start, end: schema.end, text: shownSchema(own, schema, override.arguments) });
  const changed = splice(own, edits);
  return added.length === 0 ? changed : `${changed.slice(0, changed.lastIndexOf("}"))},${added.join(",")}}`;
}

function wildcard(pattern: string): { test(name: string): boolean } {
  const [first = "", ...rest] = pattern.split("*");
  const last = rest.pop();
  return {
    test(name) {
      if (last === undefined) return name === first;
      if (!name.startsWith(first) || !name.endsWith(last) || name.length < first.length + last.length) return false;
      let at = first.length;
      for (const part of rest) {
        const found = name.indexOf(part, at);
        if (found < 0) return false;
        at = found + part.length;
      }
      return at <= name.length - last.length;
    },
  };
}

export interface CompiledArgument {
  readonly name: string;
  readonly isHidden: boolean;
  /** `fixed` and `default` contain JSON. */
  readonly fixed: string | undefined;
  readonly default: string | undefined;
  readonly expression: Expression | undefined;
  readonly description: string | undefined;
}

export function compileArgument(
  name: string,
  config: ArgumentOverride,
  cel: (source: string) => Expression,
): CompiledArgument {
  const isFixed = config.value !== undefined || config.expression !== undefined;
  return {
    name,
    isHidden: config.hidden ?? isFixed,
    fixed: config.value === undefined ? undefined : JSON.stringify(config.value),
    default: config.default === undefined ? undefined : JSON.stringify(config.default),
    expression: config.expression === undefined ? undefined : cel(config.expression),
    description: config.description,
  };
}

export type FilledRequest =
  | { readonly request: ClientRequest; readonly problem?: undefined; readonly misspelled?: undefined }
  /** A value could not be computed from the caller's identity. */
  | { readonly problem: string; readonly misspelled?: undefined }
  /** The client sent a configured argument with another spelling, which the server might accept. */
  | { readonly misspelled: string; readonly problem?: undefined };

export function filledRequest(
  request: ClientRequest,
  args: readonly CompiledArgument[],
  caller: AttributeSource | undefined,
): FilledRequest {
  const sent = request.params.arguments;
  const isObject = typeof sent === "object" && sent !== null && !Array.isArray(sent);
  const misspelled = isObject ? spellingProblem(Object.keys(sent), args) : undefined;
  if (misspelled !== undefined) return { misspelled };
  const changes = new Map<string, string | undefined>();
  for (const one of args) {
    const value = filling(one, caller);
    if (value.problem !== undefined) return { problem: `the argument "${one.name}": ${value.problem}` };
    if (one.isHidden) changes.set(one.name, value.json);
    else if (value.json !== undefined && !(isObject && Object.hasOwn(sent, one.name)))
      changes.set(one.name, value.json);
  }
  if (changes.size === 0) return { request };
  const params = find(request.text, 0, "params");
  if (!params) return { request };
  const span = member(request.text, params.start, "arguments");
  const text = withMembers(request.text, isObject ? span : undefined, changes);
  const edit = span
    ? { start: span.start, end: span.end, text }
    : insertMembers(request.text, params.start, `"arguments":${text}`);
  const meant = { ...request.params, arguments: readJson(OWN_MESSAGE, text) };
  return { request: editedRequest(request, [edit], meant) };
}

function spellingProblem(keys: readonly string[], args: readonly CompiledArgument[]): string | undefined {
  if (args.length === 0) return undefined;
  for (const key of keys) {
    const folded = foldCase(key);
    for (const { name, isHidden } of args) {
      if (key === name || foldCase(name) !== folded) continue;
      // The name of a hidden argument is not revealed.
      return `the argument ${JSON.stringify(key)} is not known${isHidden ? "" : `; it is written ${JSON.stringify(name)}`}`;
    }
  }
  return undefined;
}

export function shownSchema(text: string, schema: Span, args: readonly CompiledArgument[]): string {
  const properties = member(text, schema.start, "properties");
  const changes = new Map<string, string | undefined>();
  for (const one of args) {
    const property = properties && member(text, properties.start, one.name);
    if (one.isHidden) changes.set(one.name, undefined);
    else if (property) changes.set(one.name, shownProperty(text, property, one));
  }
  const required = member(text, schema.start, "required");
  const changed = new Map<string, string | undefined>();
  if (properties) changed.set("properties", withMembers(text, properties, changes));
  if (required) changed.set("required", stillRequired(text, required, args));
  return withMembers(text, schema, changed);
}

function shownProperty(text: string, property: Span, one: CompiledArgument): string {
  const changes: [string, string][] = [];
  if (one.description !== undefined) changes.push(["description", JSON.stringify(one.description)]);
  if (one.default !== undefined) changes.push(["default", one.default]);
  // A schema may be `true`, which cannot contain a description.
  return text[property.start] === "{" ? withMembers(text, property, new Map(changes)) : slice(text, property);
}

/** Clients do not have to send arguments that the gateway fills. */
function stillRequired(text: string, required: Span, args: readonly CompiledArgument[]): string {
  const filled = new Set(args.filter((one) => one.isHidden || one.default !== undefined).map(({ name }) => name));
  const kept = elements(text, required.start).filter((item) => !filled.has(String(readJson(PART, slice(text, item)))));
  return `[${kept.map((item) => slice(text, item)).join(",")}]`;
}

function filling(
  one: CompiledArgument,
  caller: AttributeSource | undefined,
): { readonly json: string | undefined; readonly problem?: undefined } | { readonly problem: string } {
  if (one.expression === undefined) return { json: one.fixed ?? one.default };
  if (caller === undefined) return { problem: "nothing is known of the caller" };
  const result = one.expression.evaluate(caller);
  if (!result.ok) return { problem: result.error };
  // A null value counts as missing.
  return result.value === null ? { problem: "its value is null" } : { json: JSON.stringify(result.value) };
}

export type ToolSettingsByTarget = ReadonlyMap<string, ToolSettings>;

export class TargetTools {
  readonly #logger: Logger;
  readonly #quarantines = new Map<Target, Quarantine>();
  #settings: ToolSettingsByTarget;

  constructor(settings: ToolSettingsByTarget, logger: Logger) {
    this.#settings = settings;
    this.#logger = logger;
  }

  /** Applies a new configuration. The returned function reports whether a target's settings are unchanged. */
  configure(settings: ToolSettingsByTarget): (name: string) => boolean {
    const before = this.#settings;
    this.#settings = settings;
    return (name) => settings.get(name)?.fingerprint === before.get(name)?.fingerprint;
  }

  of(target: Target): { readonly settings: ToolSettings; readonly quarantine: Quarantine } | undefined {
    const settings = this.#settings.get(target.name);
    if (settings === undefined) return undefined;
    let quarantine = this.#quarantines.get(target);
    if (quarantine === undefined) {
      quarantine = new Quarantine(target.name, this.#logger);
      this.#quarantines.set(target, quarantine);
    }
    return { settings, quarantine };
  }

  forget(target: Target): void {
    this.#quarantines.delete(target);
  }

  report(): Record<string, unknown> {
    const tools = [...this.#quarantines].flatMap(([{ name }, quarantine]) =>
      quarantine.tools.map((tool) => ({
        target: name,
        tool: tool.name,
        difference: tool.difference,
        suspicious: tool.markers,
      })),
    );
    return tools.length === 0 ? {} : { quarantined: tools };
  }
}
