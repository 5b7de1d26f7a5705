/**
 * Lists the pages in the order of the rail, each with its shortcut.
 */
export interface Page {
  readonly name: string;
  readonly title: string;
  /** Pressing this key after `g` opens the page. */
  readonly key: string;
  readonly doc: string;
}

export const PAGES: readonly Page[] = [
  { name: "overview", title: "Overview", key: "o", doc: "Traffic, errors and current problems" },
  { name: "requests", title: "Requests", key: "r", doc: "Recent requests and their traces" },
  { name: "mcp", title: "MCP", key: "m", doc: "MCP servers, sessions, and a client to call tools" },
  { name: "llm", title: "LLM", key: "l", doc: "Models, chat and usage" },
  { name: "keys", title: "Keys & spend", key: "k", doc: "API keys, and the cost of each key, user, team, and model" },
  { name: "limits", title: "Limits", key: "i", doc: "Rate limits and their buckets" },
  { name: "policies", title: "Policies", key: "p", doc: "Policies of each route, in execution order" },
  { name: "access", title: "Access", key: "a", doc: "Who may use which routes, tools, and models" },
  { name: "cel", title: "CEL", key: "e", doc: "Evaluate an expression on a request" },
  { name: "config", title: "Config", key: "c", doc: "Configuration files, with checks" },
  { name: "runtime", title: "Runtime", key: "u", doc: "Log level, memory, tasks and profiles" },
];
