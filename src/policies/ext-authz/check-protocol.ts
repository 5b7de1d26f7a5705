/**
 * Defines the supported subset of Envoy's external authorization protocol v3 as protobufjs data, so no .proto file is
 * shipped. Unsupported fields are omitted, because protobuf receivers skip unknown fields.
 */
import type { fromJSON } from "@grpc/proto-loader";
import type { HeaderOption } from "../../policy-parts/service-headers.ts";

export const SERVICE_NAME = "envoy.service.auth.v3.Authorization";

export interface CheckRequest {
  readonly attributes: {
    readonly source: { readonly address: object; readonly principal: string };
    readonly request: {
      readonly time: { readonly seconds: number; readonly nanos: number };
      readonly http: {
        readonly id: string;
        readonly method: string;
        readonly headers: readonly MapEntry[];
        readonly path: string;
        readonly host: string;
        readonly scheme: string;
        readonly protocol: string;
      };
    };
    readonly contextExtensions: readonly MapEntry[];
  };
}

/** Protobuf encodes a map as a list of entries. Unlike an object, a list can contain the key `__proto__`. */
export interface MapEntry {
  readonly key: string;
  readonly value: string;
}

export interface CheckResponse {
  readonly status: { readonly code: number; readonly message: string } | null;
  readonly deniedResponse: {
    readonly status: { readonly code: number } | null;
    readonly headers: readonly HeaderOption[];
    readonly body: string;
  } | null;
  readonly okResponse: {
    readonly headers: readonly HeaderOption[];
    readonly headersToRemove: readonly string[];
    readonly responseHeadersToAdd: readonly HeaderOption[];
    readonly queryParametersToSet: readonly MapEntry[];
    readonly queryParametersToRemove: readonly string[];
  } | null;
  readonly errorResponse: object | null;
}

const field = (type: string, id: number) => ({ type, id });
const list = (type: string, id: number) => ({ rule: "repeated", type, id });
const message = (fields: object) => ({ fields });

const MESSAGES = {
  Authorization: {
    methods: { Check: { requestType: "CheckRequest", responseType: "CheckResponse", comment: "" } },
  },
  CheckRequest: message({ attributes: field("AttributeContext", 1) }),
  AttributeContext: message({
    source: field("Peer", 1),
    request: field("Request", 4),
    contextExtensions: list("MapEntry", 10),
  }),
  Peer: message({ address: field("Address", 1), principal: field("string", 4) }),
  Address: message({ socketAddress: field("SocketAddress", 1) }),
  SocketAddress: message({ address: field("string", 2), portValue: field("uint32", 3) }),
  Request: message({ time: field("Timestamp", 1), http: field("HttpRequest", 2) }),
  Timestamp: message({ seconds: field("int64", 1), nanos: field("int32", 2) }),
  HttpRequest: message({
    id: field("string", 1),
    method: field("string", 2),
    headers: list("MapEntry", 3),
    path: field("string", 4),
    host: field("string", 5),
    scheme: field("string", 6),
    protocol: field("string", 10),
  }),
  CheckResponse: message({
    status: field("Status", 1),
    deniedResponse: field("DeniedHttpResponse", 2),
    okResponse: field("OkHttpResponse", 3),
    errorResponse: field("ErrorHttpResponse", 5),
  }),
  ErrorHttpResponse: message({}),
  MapEntry: message({ key: field("string", 1), value: field("string", 2) }),
  Status: message({ code: field("int32", 1), message: field("string", 2) }),
  DeniedHttpResponse: message({
    status: field("HttpStatus", 1),
    headers: list("HeaderValueOption", 2),
    body: field("string", 3),
  }),
  HttpStatus: message({ code: field("int32", 1) }),
  OkHttpResponse: message({
    headers: list("HeaderValueOption", 2),
    headersToRemove: list("string", 5),
    responseHeadersToAdd: list("HeaderValueOption", 6),
    queryParametersToSet: list("MapEntry", 7),
    queryParametersToRemove: list("string", 8),
  }),
  HeaderValueOption: message({
    header: field("HeaderValue", 1),
    append: field("BoolValue", 2),
    appendAction: field("int32", 3),
  }),
  HeaderValue: message({ key: field("string", 1), value: field("string", 2), rawValue: field("bytes", 3) }),
  BoolValue: message({ value: field("bool", 1) }),
};

/**
 * All messages are in the service's package. Only the service's full name appears on the wire, so the package of a
 * message does not matter.
 */
export const PROTOCOL = {
  nested: { envoy: { nested: { service: { nested: { auth: { nested: { v3: { nested: MESSAGES } } } } } } } },
} as Parameters<typeof fromJSON>[0];
