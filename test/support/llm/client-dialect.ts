/**
 * Types that the client dialects of the tests share: the requested features, the parsed response, and the common
 * prompt.
 */

export const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
export const SCHEMA = { type: "object", properties: { marked_city: { type: "string" } }, required: ["marked_city"] };

export type ClientName = "chat" | "messages" | "responses" | "generateContent";

export interface Wish {
  readonly stream?: boolean;
  readonly system?: string;
  readonly tool?: boolean;
  /** Two calls of the tool and their results; the second with an image, if so. */
  readonly history?: "results" | "image result";
  readonly image?: boolean;
  readonly schema?: boolean;
  readonly thinks?: boolean;
}

/** What a client made of an answer, whole or streamed. */
export interface Reading {
  readonly text: string;
  readonly calls: readonly { readonly name: string; readonly input: unknown }[];
  readonly finish: string | undefined;
  readonly cachedTokens: number | undefined;
  readonly error: string | undefined;
}

export interface ClientDialect {
  readonly name: ClientName;
  path(model: string, wish: Wish): string;
  body(model: string, wish: Wish): object;
  read(body: string, stream: boolean): Reading;
}

export const QUESTION = "What is this?";
export const FIRST = "RESULT-ONE";
export const SECOND = "RESULT-TWO";
export const TOOL = { name: "get_weather", description: "The weather at a place" };
export const WHERE = { type: "object", properties: { city: { type: "string" } } };
export const CALLS = [
  { id: "call_a", city: "Rome", result: FIRST },
  { id: "call_b", city: "Oslo", result: SECOND },
];

export type Json = Record<string, unknown>;

/** The data of the events of a stream, or the one answer. */
export function documents(body: string, stream: boolean): Json[] {
  if (!stream) return [JSON.parse(body) as Json];
  return body
    .split("\n")
    .filter((line) => line.startsWith("data: {"))
    .map((line) => JSON.parse(line.slice(6)) as Json);
}

export function get(value: unknown, ...path: (string | number)[]): unknown {
  return path.reduce<unknown>((at, key) => (at as Json | undefined)?.[key as string], value);
}

export const list = (value: unknown): Json[] => (Array.isArray(value) ? (value as Json[]) : []);
export const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** The last that is said, if it says anything. */
export function number(values: readonly unknown[]): number | undefined {
  return values.findLast((value): value is number => typeof value === "number" && value > 0);
}
