/**
 * Holds the tools and the instructions of one target that differ from the lock file.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { exceedsItems } from "../../json/parse-cost.ts";
import { readJson } from "../../json/read-json.ts";
import type { Logger } from "../../record/log/logger.ts";
import { pinnedDefinition, type ToolDefinition, type ToolLock } from "./tool-lock.ts";

const TOOL = peerInput("mcp-server/locked-tool");

/** Limits memory, because a server may send new names each time. */
const MAX_QUARANTINED = 1_000;
/** Larger definitions are not stored, so they cannot be accepted from the quarantine. */
const MAX_DEFINITION_CHARS = 64 * 1024;

/** Withholds larger definitions, because parsing one blocks the event loop. */
const MAX_DEFINITION_TOKENS = 20_000;
const HUGE = `the definition has more than ${MAX_DEFINITION_TOKENS} values and names`;

export interface QuarantinedTool {
  readonly name: string;
  readonly difference: readonly string[];
  readonly markers: readonly string[];
  readonly definition: ToolDefinition | undefined;
}

export class Quarantine {
  readonly #tools = new Map<string, QuarantinedTool & { readonly text: string }>();
  readonly #target: string;
  readonly #logger: Logger;

  constructor(target: string, logger: Logger) {
    this.#target = target;
    this.#logger = logger;
  }

  get tools(): readonly QuarantinedTool[] {
    return [...this.#tools.values()].map(({ text: _text, ...tool }) => tool);
  }

  passes(name: string, text: string, lock: ToolLock): boolean {
    const known = this.#tools.get(name);
    if (known?.text === text) return false;
    const isHuge = exceedsItems(TOOL, text);
    const definition = isHuge ? {} : (readJson(TOOL, text) as ToolDefinition);
    const difference = isHuge ? [HUGE] : lock.difference(name, definition);
    if (difference === undefined) {
      this.#tools.delete(name);
      return true;
    }
    if (known === undefined && this.#tools.size >= MAX_QUARANTINED) return false;
    const isShort = !isHuge && text.length <= MAX_DEFINITION_CHARS;
    const markers = injectionMarkers(definition);
    this.#tools.set(name, {
      name,
      text: isShort ? text : "",
      difference,
      markers,
      definition: isShort ? pinnedDefinition(definition) : undefined,
    });
    if (known?.difference.join() === difference.join()) return false;
    this.#logger.warn("MCP tool quarantined: it differs from the lock file", {
      target: this.#target,
      tool: name,
      difference: difference.join(" | ").slice(0, 500),
      ...(markers.length === 0 ? {} : { suspicious: markers.join("; ") }),
    });
    return false;
  }
}

/** Limits how much of each string is checked. A definition with more characters in total is reported as suspicious. */
const MAX_LOOKED_AT_CHARS = 20_000;

const MARKERS: readonly { readonly says: string; readonly pattern: RegExp }[] = [
  {
    says: "asks to ignore other instructions",
    pattern:
      /\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|other|all|your|system)\b.{0,40}\b(?:instruction|prompt|rule|message|guideline)/is,
  },
  {
    says: "has a tag that imitates a prompt",
    pattern:
      /<\s*\/?\s*(?:important|system|instructions?|secret|assistant|user|admin)\b[^>]{0,80}>|\[\/?(?:INST|SYSTEM)\]|<\|[a-z_]{2,30}\|>/i,
  },
  {
    says: "asks to keep something from the user",
    pattern:
      /\b(?:do not|don'?t|never|without)\b.{0,40}\b(?:tell|telling|mention|mentioning|inform|informing|notify|notifying|reveal|show)\b.{0,40}\b(?:user|human|anyone)/is,
  },
  {
    says: "gives orders about other tools",
    pattern:
      /\b(?:before|after|instead of|whenever|prior to)\b.{0,40}\b(?:calling|using|invoking|any other|every other)\b.{0,60}\b(?:must|always|first|tool)/is,
  },
  {
    says: "names files or variables with secrets",
    pattern:
      /~\/\.(?:ssh|aws|config|cursor|claude|kube|gnupg|netrc)|\bid_rsa\b|\/etc\/(?:passwd|shadow)|\.env\b(?!iron)|\b(?:api[_ -]?keys?|access tokens?|private keys?|passwords?)\b.{0,60}\b(?:read|send|include|pass|append|attach|upload)\b/is,
  },
  {
    says: "mentions the system prompt",
    pattern: /\bsystem prompt\b|\byou are (?:now|an?) (?:ai|assistant|language model)/i,
  },
  {
    says: "asks to send data elsewhere",
    pattern: /\b(?:send|post|upload|forward|exfiltrate|leak)\b.{0,80}\bhttps?:\/\//is,
  },
  {
    says: "has invisible or direction-changing characters",
    pattern: /[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u00ad]|[\u{e0000}-\u{e007f}]/u,
  },
  { says: "has a long run of encoded text", pattern: /[A-Za-z0-9+/]{200,}={0,2}/ },
];

export function injectionMarkers(definition: unknown): string[] {
  const found = new Set<string>();
  let chars = 0;
  const look = (value: unknown, depth: number): void => {
    if (depth > 32) {
      found.add("is nested very deeply");
      return;
    }
    if (typeof value === "string") {
      chars += value.length;
      const text = value.slice(0, MAX_LOOKED_AT_CHARS);
      for (const { says, pattern } of MARKERS) if (pattern.test(text)) found.add(says);
    } else if (Array.isArray(value)) for (const one of value) look(one, depth + 1);
    else if (typeof value === "object" && value !== null)
      for (const [key, one] of Object.entries(value)) {
        look(key, depth + 1);
        look(one, depth + 1);
      }
  };
  look(definition, 0);
  if (chars > MAX_LOOKED_AT_CHARS) found.add("is unusually long");
  return [...found];
}
