/** Texts of prompts with `n` matches of guards. `run` guards one of them for `countSteps`. */
import { finish } from "../../../src/base/sliced-work.ts";
import { guardParts } from "../../../src/llm/guards/guarded-text.ts";
import { compileTextGuard } from "../../../src/llm/guards/text-guard.ts";
import type { TextGuard } from "../../../src/llm/request/llm-call.ts";

const guard = (action: TextGuard["action"], pattern: string): TextGuard =>
  compileTextGuard(action, [{ pattern }], { status: 403, message: "no" });

/** The guards reject nothing, because the masks cover all of their matches. */
const CASES: Readonly<Record<string, { readonly guards: readonly TextGuard[]; parts(n: number): string[] }>> = {
  "a match at each border of many parts": {
    guards: [guard("mask", "ab")],
    parts: (n) => ["a", ...Array.from({ length: n }, () => "b a"), "b"],
  },
  "matches between few borders": {
    guards: [guard("mask", "ab")],
    parts: (n) => ["ab ".repeat(n), "ab ".repeat(n)],
  },
  "masks at each border, which cover what another guard rejects": {
    guards: [guard("mask", "ab"), guard("reject", "ab")],
    parts: (n) => ["a", ...Array.from({ length: n }, () => "b a"), "b"],
  },
  "masks in one text, which cover what another guard rejects": {
    guards: [guard("mask", "[a-z]"), guard("reject", "a")],
    parts: (n) => ["a".repeat(n)],
  },
};

export const GUARDED_PARTS: readonly string[] = Object.keys(CASES);

export function run(name: string, n: number): void {
  const { guards = [], parts } = CASES[name] ?? {};
  finish(guardParts(parts?.(n) ?? [], guards));
}
