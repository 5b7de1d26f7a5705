/**
 * Finds tools by words (`toolMode: search`): the words of the question are compared with those of names, titles,
 * descriptions and arguments; rare words count more. Small enough to be done anew for every question, so that nothing
 * that a rule hides now can be found because it was visible before.
 */

import type { Steps } from "../../base/turns.ts";

/** One tool of a list, as far as a search reads it. */
export interface SearchedTool {
  readonly name: string;
  readonly title?: unknown;
  readonly description?: unknown;
  readonly inputSchema?: unknown;
}

/** Words beyond these add nothing to a question. */
const MAX_QUESTION_WORDS = 32;
/** Of a description: what comes later does not say what a tool is for. */
const MAX_READ_CHARS = 4_000;
/** Of a tool's arguments: a server can name thousands. */
const MAX_READ_ARGUMENTS = 200;

const WEIGHTS = { name: 4, title: 3, argument: 1.5, description: 1 } as const;

/** The tools that have any of the words, the best first; without words all of them, in their order. */
export function* searchTools<Tool extends SearchedTool>(tools: readonly Tool[], question: string): Steps<Tool[]> {
  const wanted = [...new Set(wordsOf(question))].slice(0, MAX_QUESTION_WORDS);
  if (wanted.length === 0) return [...tools];
  const weighed: { readonly tool: Tool; readonly weights: readonly number[] }[] = [];
  const having = wanted.map(() => 0);
  for (const tool of tools) {
    const words = weightsOf(tool);
    const weights = wanted.map((word) => weightOf(words, word));
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

/** The first sentence, short enough to stand in a list. */
export function summaryOf(description: unknown, maxChars: number): string {
  if (typeof description !== "string") return "";
  const line = description.slice(0, MAX_READ_CHARS).replace(/\s+/g, " ").trim();
  const sentence = /^.*?[.!?](?=\s|$)/.exec(line)?.[0] ?? line;
  return sentence.length <= maxChars ? sentence : `${sentence.slice(0, maxChars - 1)}…`;
}

function weightsOf(tool: SearchedTool): Map<string, number> {
  const words = new Map<string, number>();
  const add = (text: unknown, weight: number): void => {
    if (typeof text !== "string") return;
    for (const word of wordsOf(text.slice(0, MAX_READ_CHARS))) words.set(word, Math.max(words.get(word) ?? 0, weight));
  };
  add(tool.description, WEIGHTS.description);
  const properties = (tool.inputSchema as { properties?: unknown } | null | undefined)?.properties;
  if (typeof properties === "object" && properties !== null)
    for (const name of Object.keys(properties).slice(0, MAX_READ_ARGUMENTS)) add(name, WEIGHTS.argument);
  add(tool.title, WEIGHTS.title);
  add(tool.name, WEIGHTS.name);
  return words;
}

/** A word that begins alike counts half: `issue` finds `issues`. */
function weightOf(words: ReadonlyMap<string, number>, wanted: string): number {
  const same = words.get(wanted);
  if (same !== undefined) return same;
  if (wanted.length < 3) return 0;
  let best = 0;
  for (const [word, weight] of words)
    if (weight > best && word.length >= 3 && (word.startsWith(wanted) || wanted.startsWith(word))) best = weight;
  return best / 2;
}

function wordsOf(text: string): string[] {
  return (
    text
      .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? []
  );
}
