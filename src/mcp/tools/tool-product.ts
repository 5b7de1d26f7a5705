/**
 * A target's tools as the configuration offers them: some left out, some under other names and descriptions, with
 * arguments that are filled here, and only as they were accepted where there is a lock file. Compiled once per load.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import type { Steps } from "../../base/turns.ts";
import type { Expression } from "../../cel/expression.ts";
import { type Edit, member, type Span, slice, splice } from "../../json/json-text.ts";
import type { ToolsConfig } from "../server-side/tool-settings.ts";
import { type CompiledArgument, compileArgument, shownSchema } from "./tool-arguments.ts";
import type { ToolLock } from "./tool-lock.ts";

/** One tool as clients may call it. */
export interface OfferedTool {
  /** The server's own name. */
  readonly name: string;
  readonly arguments: readonly CompiledArgument[];
  readonly timeoutMs: number | undefined;
}

/** Checks a text that a server sends. */
export interface ResultGuard {
  /** The parts of one text as they may be sent, or undefined if they may not. The same list if nothing changes. */
  checked(parts: readonly string[]): Steps<readonly string[] | undefined>;
  /** What clients are told instead. */
  readonly refusal: string;
}

/** Guards in shadow mode. */
export interface ResultWatch {
  /** What they would do with this text; rules and actions, never the text. */
  found(parts: readonly string[]): Steps<readonly WatchFinding[]>;
  /** What they would do with a result that is too large to be looked at. */
  readonly unread: readonly WatchFinding[];
}

export interface WatchFinding {
  readonly rule: string;
  readonly action: "mask" | "reject";
}

export interface ToolProduct {
  /** Changes when anything about the tools does. */
  readonly fingerprint: string;
  readonly lock: ToolLock | undefined;
  readonly guard: ResultGuard | undefined;
  readonly watch: ResultWatch | undefined;
  /** The tool that clients call by this name; undefined if they may not call any by it. */
  called(shown: string): OfferedTool | undefined;
  /** The text of a tool in a list, as clients shall see it; undefined if they shall not. */
  listed(text: string, item: Span, name: string): string | undefined;
}

interface CompiledOverride extends OfferedTool {
  readonly shown: string;
  readonly title: string | undefined;
  readonly description: string | undefined;
}

export interface ProductParts {
  readonly tools: ToolsConfig | undefined;
  readonly lock: ToolLock | undefined;
  readonly guard: ResultGuard | undefined;
  readonly watch: ResultWatch | undefined;
  /** Of everything that has a part in it, beyond `tools` and `lock`. */
  readonly key: string;
  cel(source: string): Expression;
}

export function compileToolProduct({ tools = {}, lock, guard, watch, key, cel }: ProductParts): ToolProduct {
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
    // The old name of a tool that has another one now.
    if (overrides[shown] !== undefined || !isOffered(shown)) return undefined;
    return { name: shown, arguments: [], timeoutMs: tools.timeout };
  }

  return {
    fingerprint: JSON.stringify([tools, lock?.fingerprint ?? null, key]),
    lock,
    guard,
    watch,
    called,
    listed(text, item, name) {
      const override = overrides[name];
      // A tool whose name another one took over cannot be called: it is not shown either.
      if (called(override?.shown ?? name)?.name !== name) return undefined;
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

/** `*` stands for any characters. Takes time by the product of both lengths at most, whatever clients send. */
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
