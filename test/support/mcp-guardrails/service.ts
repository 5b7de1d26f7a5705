/**
 * An MCP policy service over gRPC on a free port. The test specifies its responses.
 */
import { resolve } from "node:path";
import {
  type GrpcObject,
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceClientConstructor,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { Json } from "../mcp/client.ts";

export interface ReceivedCheck {
  readonly phase: "request" | "response";
  readonly services: readonly string[];
  readonly method: string;
  /** The parsed parameters or result, or undefined if the gateway sent none. */
  readonly body: Json;
  readonly headers: readonly string[];
}

/** `error` fails the call, and `never` sends nothing. */
export type CheckAnswer = Record<string, unknown> | "error" | "never";

export interface PolicyService {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  readonly received: ReceivedCheck[];
  answer: (check: ReceivedCheck) => CheckAnswer;
  close(): Promise<void>;
}

export const PASS = { pass: {} };

export function mutated(value: unknown): Record<string, unknown> {
  return { mutated: Buffer.from(typeof value === "string" ? value : JSON.stringify(value)) };
}

export function rejected(reason: string, code = 1): Record<string, unknown> {
  return { error: { code, reason } };
}

interface WireCheck {
  readonly serviceNames: readonly string[];
  readonly method: string;
  readonly mcpRequest?: Buffer;
  readonly mcpResponse?: Buffer;
  readonly headers?: readonly { readonly key: string; readonly value: Buffer }[];
}

export async function startPolicyService(
  answer: PolicyService["answer"] = () => PASS,
  credentials = ServerCredentials.createInsecure(),
): Promise<PolicyService> {
  const definition = loadSync(resolve("test/support/mcp-guardrails/ext_mcp.proto"), { defaults: true });
  const packages = loadPackageDefinition(definition) as unknown as {
    agentgateway: { dev: { ext_mcp: GrpcObject } };
  };
  const { service } = packages.agentgateway.dev.ext_mcp.ExtMcp as ServiceClientConstructor;
  const server = new Server();
  const started: PolicyService = {
    host: "",
    received: [],
    answer,
    async close() {
      server.forceShutdown();
    },
  };
  const handle =
    (phase: ReceivedCheck["phase"]) =>
    ({ request }: ServerUnaryCall<WireCheck, unknown>, done: sendUnaryData<unknown>): void => {
      const bytes = phase === "request" ? request.mcpRequest : request.mcpResponse;
      const check: ReceivedCheck = {
        phase,
        services: request.serviceNames,
        method: request.method,
        body: bytes === undefined ? undefined : JSON.parse(bytes.toString()),
        headers: (request.headers ?? []).map(({ key, value }) => `${key}: ${value.toString("latin1")}`),
      };
      started.received.push(check);
      const said = started.answer(check);
      if (said === "error") done({ code: 13, details: "the service failed" });
      else if (said !== "never") done(null, said);
    };
  server.addService(service, { checkRequest: handle("request"), checkResponse: handle("response") });
  const port = await new Promise<number>((done, fail) => {
    server.bindAsync("127.0.0.1:0", credentials, (error, bound) => (error ? fail(error) : done(bound)));
  });
  return Object.assign(started, { host: `127.0.0.1:${port}` });
}
