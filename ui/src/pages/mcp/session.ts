/**
 * Manages the playground's connection. There is at most one, and it is kept while other pages are open.
 */
import { signal } from "@preact/signals";
import { credential, credentialHeaders } from "../../data/credential.ts";
import type { Endpoint } from "../../data/endpoints.ts";
import { tasks } from "../../data/tasks.ts";
import { knownTools } from "../../data/tools.ts";
import type { JsonSchema } from "../config/schema-doc.ts";
import { type Leg, login } from "./login.ts";
import { McpClient, McpError, type ServerInfo } from "./mcp-client.ts";

export interface Tool {
  readonly name: string;
  readonly title?: string;
  readonly description?: string;
  readonly inputSchema?: JsonSchema;
  readonly annotations?: Readonly<Record<string, unknown>>;
}

export interface Prompt {
  readonly name: string;
  readonly description?: string;
  readonly arguments?: readonly { readonly name: string; readonly description?: string; readonly required?: boolean }[];
}

export interface Resource {
  readonly uri?: string;
  readonly uriTemplate?: string;
  readonly name: string;
  readonly description?: string;
  readonly mimeType?: string;
}

export type Connection =
  | { readonly state: "none" }
  | { readonly state: "connecting"; readonly endpoint: Endpoint }
  | { readonly state: "failed"; readonly endpoint: Endpoint; readonly problem: McpError | Error }
  | {
      readonly state: "open";
      readonly endpoint: Endpoint;
      readonly client: McpClient;
      readonly info: ServerInfo;
      readonly tools: readonly Tool[];
      readonly prompts: readonly Prompt[];
      readonly resources: readonly Resource[];
    };

/** Represents a question that the server sends to the user during a call. */
export interface Question {
  readonly message: string;
  readonly schema: JsonSchema;
  answer(action: "accept" | "decline" | "cancel", content?: unknown): void;
}

export const connection = signal<Connection>({ state: "none" });
export const loginLegs = signal<readonly Leg[]>([]);
export const question = signal<Question | undefined>(undefined);

export async function connect(endpoint: Endpoint): Promise<void> {
  disconnect();
  connection.value = { state: "connecting", endpoint };
  const client = new McpClient(endpoint, credentialHeaders(), askUser);
  try {
    const info = await client.connect();
    const can = info.capabilities ?? {};
    const tools = can.tools ? await client.list<Tool>("tools/list", "tools") : [];
    const prompts = can.prompts ? await client.list<Prompt>("prompts/list", "prompts") : [];
    const resources = can.resources ? await resourcesOf(client) : [];
    connection.value = { state: "open", endpoint, client, info, tools, prompts, resources };
    knownTools.value = tools.map(({ name }) => ({ name, endpoint: endpoint.id }));
    // Connecting starts the servers, so their state has changed.
    void tasks.refresh();
  } catch (error) {
    connection.value = { state: "failed", endpoint, problem: error as Error };
  }
}

export function disconnect(): void {
  const open = connection.value;
  connection.value = { state: "none" };
  knownTools.value = [];
  if (open.state === "open") open.client.close().catch(() => undefined);
}

let loginAttempt: AbortController | undefined;

export async function signIn(endpoint: Endpoint, authenticate: string | undefined): Promise<void> {
  loginAttempt?.abort();
  loginAttempt = new AbortController();
  try {
    const token = await login(
      endpoint,
      authenticate,
      (legs) => {
        loginLegs.value = legs;
      },
      loginAttempt.signal,
    );
    credential.value = { ...credential.value, source: "token", value: token };
    await connect(endpoint);
  } catch {
    // The failed step shows the reason.
  }
}

export function needsLogin(problem: Error): problem is McpError {
  return problem instanceof McpError && problem.status === 401;
}

/** Many servers support only one of resources and resource templates. */
async function resourcesOf(client: McpClient): Promise<Resource[]> {
  const listed = await client.list<Resource>("resources/list", "resources").catch(() => []);
  const templates = await client.list<Resource>("resources/templates/list", "resourceTemplates").catch(() => []);
  return [...listed, ...templates];
}

function askUser(params: Readonly<Record<string, unknown>>): Promise<unknown> {
  return new Promise((resolve) => {
    question.value = {
      message: String(params.message ?? "The server asks for input:"),
      schema: (params.requestedSchema as JsonSchema | undefined) ?? {},
      answer(action, content) {
        question.value = undefined;
        resolve(action === "accept" ? { action, content } : { action });
      },
    };
  });
}
