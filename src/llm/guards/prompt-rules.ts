/**
 * Applies `ai` policies to a request in the client's dialect: first overrides, computed fields, and defaults, then added
 * messages, then guards.
 */

import type { Steps } from "../../base/sliced-work.ts";
import { type Exchange, StateKey } from "../../core/exchange.ts";
import { isMembers, type Members } from "../../json/json.ts";
import type { Format } from "../request/dialect.ts";
import type { PromptMessage, PromptRules } from "../request/llm-call.ts";
import { BodyTexts, type Resolve } from "./text-places.ts";

/** Merges rules that are ordered from the outermost scope to the innermost. Inner fields replace outer fields. */
export function mergeRules(rules: readonly PromptRules[]): PromptRules {
  if (rules.length === 1) return rules[0] as PromptRules;
  const merged: Record<string, unknown> = {};
  for (const one of rules)
    for (const [name, value] of Object.entries(one)) if (value !== undefined) merged[name] = value;
  return merged;
}

/**
 * Requests that are not read as LLM calls have no `LlmCall`, so their rules are kept here. The outermost scope is
 * first.
 */
const rulesOfUnread = new StateKey<PromptRules[]>();

export function noteUnreadRules(exchange: Exchange, rules: PromptRules): void {
  const known = exchange.state(rulesOfUnread);
  if (known === undefined) exchange.setState(rulesOfUnread, [rules]);
  else known.push(rules);
}

export function unreadRulesOf(exchange: Exchange): PromptRules {
  return mergeRules(exchange.state(rulesOfUnread) ?? []);
}

export function hasGuards({ requestGuards, responseGuards, requestWebhooks, responseWebhooks }: PromptRules): boolean {
  return [requestGuards, responseGuards, requestWebhooks, responseWebhooks].some((guards) => guards !== undefined);
}

export function editsRequest(rules: PromptRules): boolean {
  const { defaults, overrides, computed, prepend, append, requestGuards } = rules;
  return [defaults, overrides, computed, prepend, append, requestGuards].some((rule) => rule !== undefined);
}

/** For `resolve`, see `PlaceOptions`. Throws `GuardRejection` if a guard rejects the request. */
export function* applyRules(body: Members, format: Format, rules: PromptRules, resolve?: Resolve): Steps<Members> {
  let edited = yield* withoutNulls(body);
  if (rules.overrides) edited = { ...edited, ...rules.overrides };
  if (rules.computed) edited = withComputed(edited, rules.computed);
  if (rules.defaults) edited = { ...rules.defaults, ...edited };
  if (rules.prepend) edited = addMessages(edited, format, rules.prepend, "before");
  if (rules.append) edited = addMessages(edited, format, rules.append, "after");
  const { requestGuards: guards } = rules;
  if (guards === undefined) return edited;
  return yield* new BodyTexts(edited, { direction: "request", resolve }).guarded(guards);
}

/** Guards cannot read a prompt that consists of token ids. */
export function hasTokenNumbers({ prompt, input }: Members): boolean {
  return [prompt, input].some(
    (value) =>
      Array.isArray(value) &&
      value.some(
        (item) => typeof item === "number" || (Array.isArray(item) && item.some((one) => typeof one === "number")),
      ),
  );
}

/** A `null` member counts as absent. */
function* withoutNulls(body: Members): Steps<Members> {
  if (!Object.values(body).includes(null)) return body;
  const present = Object.entries(body).filter(([, value]) => value !== null);
  yield;
  const members = Object.fromEntries(present);
  yield;
  return members;
}

function withComputed(body: Members, computed: ReadonlyMap<string, unknown>): Members {
  const kept = Object.entries(body).filter(([name]) => !computed.has(name));
  return Object.fromEntries([...kept, ...[...computed].filter(([, value]) => value !== undefined)]);
}

function addMessages(
  body: Members,
  format: Format,
  messages: readonly PromptMessage[],
  where: "before" | "after",
): Members {
  const join = (list: readonly unknown[], added: readonly unknown[]): unknown[] =>
    where === "before" ? [...added, ...list] : [...list, ...added];
  const system = messages.filter(({ role }) => role === "system" || role === "developer");
  const turns = messages.filter(({ role }) => role !== "system" && role !== "developer");
  switch (format) {
    case "chat":
      return { ...body, messages: join(asList(body.messages), messages) };
    case "responses":
      return {
        ...body,
        input: join(
          typeof body.input === "string" ? [{ role: "user", content: body.input }] : asList(body.input),
          messages,
        ),
      };
    case "messages":
      return {
        ...body,
        ...(system.length === 0
          ? {}
          : {
              system: join(
                textBlocks(body.system),
                system.map(({ content }) => ({ type: "text", text: content })),
              ),
            }),
        messages: join(asList(body.messages), turns),
      };
    case "generateContent": {
      const name = body.system_instruction === undefined ? "systemInstruction" : "system_instruction";
      const instruction = isMembers(body[name]) ? body[name] : {};
      return {
        ...body,
        ...(system.length === 0
          ? {}
          : {
              [name]: {
                ...instruction,
                parts: join(
                  asList(instruction.parts),
                  system.map(({ content }) => ({ text: content })),
                ),
              },
            }),
        contents: join(
          asList(body.contents),
          turns.map(({ role, content }) => ({
            role: role === "assistant" ? "model" : role,
            parts: [{ text: content }],
          })),
        ),
      };
    }
    case "converse":
      return {
        ...body,
        ...(system.length === 0
          ? {}
          : {
              system: join(
                asList(body.system),
                system.map(({ content }) => ({ text: content })),
              ),
            }),
        messages: join(
          asList(body.messages),
          turns.map(({ role, content }) => ({ role, content: [{ text: content }] })),
        ),
      };
    default:
      return body;
  }
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function textBlocks(system: unknown): readonly unknown[] {
  return typeof system === "string" ? [{ type: "text", text: system }] : asList(system);
}
