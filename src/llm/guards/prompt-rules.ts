/**
 * What `ai` policies do to a request, in the client's own dialect: defaults and overrides of its members, messages
 * before and after it, guards over its texts. The order is that of this file; the model's name was settled before.
 */
import type { Steps } from "../../lib/process/turns.ts";
import { ExpectedError } from "../../lib/text/expected-error.ts";
import type { Format } from "../dialects/dialect.ts";
import type { PromptMessage, PromptRules, TextGuard } from "../dialects/llm-call.ts";
import { isMembers, type Members } from "../wire/json.ts";
import { eachAnswerText, eachPromptText, mapAnswerTexts, mapPromptTexts } from "./map-texts.ts";

/** Each field of an inner scope replaces that of an outer one. */
export function mergeRules(rules: readonly PromptRules[]): PromptRules {
  const merged: Record<string, unknown> = {};
  for (const one of rules)
    for (const [name, value] of Object.entries(one)) if (value !== undefined) merged[name] = value;
  return merged;
}

/** Whether the request's tree must be built for these rules. */
export function editsRequest(rules: PromptRules): boolean {
  return [rules.defaults, rules.overrides, rules.prepend, rules.append, rules.requestGuards].some(
    (rule) => rule !== undefined,
  );
}

export class GuardRejection extends ExpectedError {
  readonly status: number;

  constructor(guard: Pick<TextGuard, "rejection">) {
    super(guard.rejection.message);
    this.name = "GuardRejection";
    this.status = guard.rejection.status;
  }
}

/** Throws GuardRejection when a guard says no. */
export function* applyRules(body: Members, format: Format, rules: PromptRules): Steps<Members> {
  let edited = yield* withoutNulls(body);
  if (rules.defaults || rules.overrides) edited = { ...rules.defaults, ...edited, ...rules.overrides };
  if (rules.prepend) edited = addMessages(edited, format, rules.prepend, "before");
  if (rules.append) edited = addMessages(edited, format, rules.append, "after");
  const { requestGuards: guards } = rules;
  return guards ? yield* mapTextsInSteps(edited, "prompt", (text) => guardSteps(text, guards)) : edited;
}

/** A client that says null leaves the choice open, as if it had said nothing. */
function* withoutNulls(body: Members): Steps<Members> {
  const entries = Object.entries(body);
  const said = entries.filter(([, value]) => value !== null);
  if (said.length === entries.length) return body;
  yield;
  const members = Object.fromEntries(said);
  yield;
  return members;
}

/** Throws GuardRejection. */
export function* guardSteps(text: string, guards: readonly TextGuard[]): Steps<string> {
  let seen = text;
  for (const guard of guards) {
    if (guard.action === "mask") seen = yield* guard.masking(seen);
    else if (yield* guard.matching(seen)) throw new GuardRejection(guard);
  }
  return seen;
}

/** All texts are found, then each is looked at, then those that changed are put in their places. */
export function* mapTextsInSteps(
  body: Members,
  kind: "prompt" | "answer",
  look: (text: string) => Steps<string>,
): Steps<Members> {
  const texts: string[] = [];
  const found = (text: string): void => void texts.push(text);
  if (kind === "prompt") eachPromptText(body, found);
  else eachAnswerText(body, found);
  yield;
  let isChanged = false;
  for (const [i, text] of texts.entries()) {
    const seen = yield* look(text);
    isChanged ||= seen !== text;
    texts[i] = seen;
    yield;
  }
  let next = 0;
  if (!isChanged) return body;
  const mapTexts = kind === "prompt" ? mapPromptTexts : mapAnswerTexts;
  return mapTexts(body, () => texts[next++] ?? "");
}

/** What guards in shadow mode would make of a text; each that finds something is told. */
export function* watchSteps(
  text: string,
  guards: readonly TextGuard[],
  found: (guard: TextGuard) => void,
): Steps<string> {
  let seen = text;
  for (const guard of guards) {
    if (guard.action === "mask") {
      const masked = yield* guard.masking(seen);
      if (masked !== seen) found(guard);
      seen = masked;
    } else if (yield* guard.matching(seen)) {
      found(guard);
      return seen;
    }
  }
  return seen;
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
