/**
 * The tools of one target that clients do not get because they differ from the lock file: with the difference, what is
 * suspicious in them, and the definition that a person may accept. Kept per target, for the log and the admin interface.
 */

import { hasMoreTokens } from "../../json/json-tokens.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { injectionMarkers } from "./injection-markers.ts";
import { pinnedDefinition, type ToolDefinition, type ToolLock } from "./tool-lock.ts";

/** A server may send a new name each time. */
const MAX_QUARANTINED = 1_000;
/** What is kept of a definition, so that it can be accepted. */
const MAX_DEFINITION_CHARS = 64 * 1024;

/** A definition is parsed at once: a larger one is never passed. */
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

  /** Whether the tool is as it was accepted; what is not is told once per change. */
  passes(name: string, text: string, lock: ToolLock): boolean {
    const known = this.#tools.get(name);
    if (known?.text === text) return false;
    const isHuge = hasMoreTokens(text, MAX_DEFINITION_TOKENS);
    const definition = isHuge ? {} : (JSON.parse(text) as ToolDefinition);
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
