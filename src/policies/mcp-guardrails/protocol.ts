/**
 * Defines agentgateway's protocol for external MCP policy services as protobufjs data, so no .proto file is shipped.
 */
import type { CelOutput } from "../../cel/expression.ts";
import type { GrpcProtocol } from "../../http/client/grpc-client.ts";

export const SERVICE_NAME = "agentgateway.dev.ext_mcp.ExtMcp";

export interface WireHeader {
  readonly key: string;
  readonly value: Uint8Array;
}

/** `google.protobuf.Struct`. Protobuf encodes a map as a list of entries, which can contain the key `__proto__`. */
export interface WireStruct {
  readonly fields: readonly { readonly key: string; readonly value: WireValue }[];
}

export type WireValue =
  | { readonly nullValue: 0 }
  | { readonly numberValue: number }
  | { readonly stringValue: string }
  | { readonly boolValue: boolean }
  | { readonly structValue: WireStruct }
  | { readonly listValue: { readonly values: readonly WireValue[] } };

interface AnyWireValue {
  readonly numberValue?: number;
  readonly stringValue?: string;
  readonly boolValue?: boolean;
  readonly structValue?: ReceivedStruct;
  readonly listValue?: { readonly values: readonly AnyWireValue[] };
}

export interface ReceivedStruct {
  readonly fields: readonly { readonly key: string; readonly value: AnyWireValue | null }[];
}

interface WireCheck {
  readonly serviceNames: readonly string[];
  readonly method: string;
  readonly metadataContext?: WireStruct | undefined;
}

export interface WireRequest extends WireCheck {
  readonly mcpRequest?: Uint8Array | undefined;
  readonly headers: readonly WireHeader[];
}

export interface WireResponse extends WireCheck {
  readonly mcpResponse: Uint8Array;
}

export interface WireResult {
  readonly pass?: object;
  readonly mutated?: Uint8Array;
  readonly error?: { readonly code: number; readonly reason: string; readonly mcpError?: Uint8Array };
  /** Only in results of requests. */
  readonly headerMutation?: { readonly set: readonly WireHeader[]; readonly remove: readonly string[] } | null;
  /** Only in results of requests. */
  readonly metadata?: ReceivedStruct | null;
}

const field = (type: string, id: number) => ({ type, id });
const list = (type: string, id: number) => ({ rule: "repeated", type, id });
const message = (fields: object) => ({ fields });
const choice = (name: string, fields: object, others: object = {}) => ({
  fields: { ...fields, ...others },
  oneofs: { [name]: { oneof: Object.keys(fields) } },
});

const RESULTS = { pass: field("Pass", 1), mutated: field("bytes", 2), error: field("AuthorizationError", 3) };

const MESSAGES = {
  ExtMcp: {
    methods: {
      CheckRequest: { requestType: "McpRequest", responseType: "McpRequestResult", comment: "" },
      CheckResponse: { requestType: "McpResponse", responseType: "McpResponseResult", comment: "" },
    },
  },
  // A field of an own oneof is optional: it is only sent if it is set.
  McpRequest: choice(
    "_mcpRequest",
    { mcpRequest: field("bytes", 4) },
    {
      serviceNames: list("string", 1),
      method: field("string", 2),
      metadataContext: field("Struct", 3),
      headers: list("McpHeader", 5),
    },
  ),
  McpResponse: message({
    serviceNames: list("string", 1),
    method: field("string", 2),
    metadataContext: field("Struct", 3),
    mcpResponse: field("bytes", 4),
  }),
  McpRequestResult: choice("result", RESULTS, {
    headerMutation: field("HeaderMutation", 4),
    metadata: field("Struct", 5),
  }),
  McpResponseResult: choice("result", RESULTS),
  HeaderMutation: message({ set: list("McpHeader", 1), remove: list("string", 2) }),
  McpHeader: message({ key: field("string", 1), value: field("bytes", 2) }),
  Pass: message({}),
  AuthorizationError: choice(
    "_mcpError",
    { mcpError: field("bytes", 3) },
    { code: field("int32", 1), reason: field("string", 2) },
  ),
  Struct: message({ fields: list("FieldsEntry", 1) }),
  FieldsEntry: message({ key: field("string", 1), value: field("Value", 2) }),
  Value: choice("kind", {
    nullValue: field("int32", 1),
    numberValue: field("double", 2),
    stringValue: field("string", 3),
    boolValue: field("bool", 4),
    structValue: field("Struct", 5),
    listValue: field("ListValue", 6),
  }),
  ListValue: message({ values: list("Value", 1) }),
};

/** Only the service's full name appears on the wire, so all messages are in its package. */
export const PROTOCOL = {
  nested: { agentgateway: { nested: { dev: { nested: { ext_mcp: { nested: MESSAGES } } } } } },
} as GrpcProtocol;

export function toWireStruct(entries: Iterable<readonly [key: string, value: CelOutput]>): WireStruct {
  return { fields: Array.from(entries, ([key, value]) => ({ key, value: toWireValue(value) })) };
}

function toWireValue(value: CelOutput): WireValue {
  if (value === null) return { nullValue: 0 };
  if (typeof value === "number") return { numberValue: value };
  if (typeof value === "string") return { stringValue: value };
  if (typeof value === "boolean") return { boolValue: value };
  if (Array.isArray(value)) return { listValue: { values: value.map(toWireValue) } };
  return { structValue: toWireStruct(Object.entries(value)) };
}

export function fromWireStruct({ fields }: ReceivedStruct): Record<string, unknown> {
  return Object.fromEntries(fields.map(({ key, value }) => [key, value === null ? null : fromWireValue(value)]));
}

function fromWireValue({ numberValue, stringValue, boolValue, structValue, listValue }: AnyWireValue): unknown {
  if (structValue) return fromWireStruct(structValue);
  if (listValue) return listValue.values.map(fromWireValue);
  return numberValue ?? stringValue ?? boolValue ?? null;
}
