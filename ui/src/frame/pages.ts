/**
 * The pages, in the order of the rail, each with its key. Heavy pages are loaded when they are first opened.
 */
export interface Page {
  readonly name: string;
  readonly title: string;
  /** Pressed after `g`. */
  readonly key: string;
  readonly doc: string;
}

export const PAGES: readonly Page[] = [
  { name: "overview", title: "Overview", key: "o", doc: "How traffic flows, and how well" },
  { name: "requests", title: "Requests", key: "r", doc: "Recent requests and their traces" },
  { name: "mcp", title: "MCP", key: "m", doc: "Servers, tools, and a place to call them" },
  { name: "llm", title: "LLM", key: "l", doc: "Models, chat, and usage" },
  { name: "limits", title: "Limits", key: "i", doc: "Rate limits and their buckets" },
  { name: "policies", title: "Policies", key: "p", doc: "What applies to each route, in running order" },
  { name: "config", title: "Config", key: "c", doc: "The configuration as written" },
  { name: "runtime", title: "Runtime", key: "u", doc: "Log level, memory, tasks, profiles" },
];

/** Reached from other pages and the palette. */
export const MORE_PAGES: readonly Page[] = [
  { name: "cel", title: "CEL", key: "e", doc: "Try an expression over a request" },
];
