/**
 * Defines the supported subset of Envoy's external processing protocol v3 as protobufjs data, so no .proto file is
 * shipped. Unsupported fields are omitted, because protobuf receivers skip unknown fields.
 */
import type { GrpcProtocol } from "../../http/client/grpc-client.ts";
import type { HeaderOption } from "../service-headers.ts";

export const SERVICE_NAME = "envoy.service.ext_proc.v3.ExternalProcessor";

export interface WireHeaders {
  readonly headers: {
    readonly headers: readonly { readonly key: string; readonly value: string; readonly rawValue: Buffer }[];
  };
  readonly endOfStream: boolean;
}

export interface WireBody {
  readonly body: Buffer;
  readonly endOfStream: boolean;
}

/** A message has exactly one of the steps. */
export interface ProcessingRequest {
  readonly requestHeaders?: WireHeaders;
  readonly responseHeaders?: WireHeaders;
  readonly requestBody?: WireBody;
  readonly responseBody?: WireBody;
  readonly protocolConfig?: { readonly requestBodyMode: number; readonly responseBodyMode: number };
  readonly metadataContext?: { readonly filterMetadata: Readonly<Record<string, WireStruct>> };
}

/** `google.protobuf.Struct`, of which only strings and inner structs are used. */
export interface WireStruct {
  readonly fields: Readonly<Record<string, { readonly stringValue?: string; readonly structValue?: WireStruct }>>;
}

export type Step = "requestHeaders" | "requestBody" | "responseHeaders" | "responseBody";

export interface HeaderMutation {
  readonly setHeaders: readonly HeaderOption[];
  readonly removeHeaders: readonly string[];
}

export interface CommonResponse {
  /** 0 means CONTINUE, and 1 means CONTINUE_AND_REPLACE. */
  readonly status: number;
  readonly headerMutation: HeaderMutation | null;
  readonly bodyMutation: {
    readonly body?: Uint8Array;
    readonly clearBody?: boolean;
    readonly streamedResponse?: { readonly body: Uint8Array; readonly endOfStream: boolean };
  } | null;
  readonly trailers: object | null;
}

export interface ImmediateResponse {
  readonly status: { readonly code: number } | null;
  readonly headers: HeaderMutation | null;
  readonly body: Uint8Array;
  readonly details: string;
}

export interface ModeOverride {
  readonly requestHeaderMode: number;
  readonly responseHeaderMode: number;
  readonly requestBodyMode: number;
  readonly responseBodyMode: number;
  readonly requestTrailerMode: number;
  readonly responseTrailerMode: number;
}

export interface ProcessingResponse {
  readonly requestHeaders?: { readonly response: CommonResponse | null };
  readonly responseHeaders?: { readonly response: CommonResponse | null };
  readonly requestBody?: { readonly response: CommonResponse | null };
  readonly responseBody?: { readonly response: CommonResponse | null };
  readonly immediateResponse?: ImmediateResponse;
  readonly dynamicMetadata: WireStruct | null;
  readonly modeOverride: ModeOverride | null;
}

const field = (type: string, id: number) => ({ type, id });
const list = (type: string, id: number) => ({ rule: "repeated", type, id });
const map = (type: string, id: number) => ({ keyType: "string", type, id });
const message = (fields: object) => ({ fields });
const choice = (name: string, fields: object) => ({ fields, oneofs: { [name]: { oneof: Object.keys(fields) } } });

const REQUESTS = {
  requestHeaders: field("HttpHeaders", 2),
  responseHeaders: field("HttpHeaders", 3),
  requestBody: field("HttpBody", 4),
  responseBody: field("HttpBody", 5),
};

const RESPONSES = {
  requestHeaders: field("PartResponse", 1),
  responseHeaders: field("PartResponse", 2),
  requestBody: field("PartResponse", 3),
  responseBody: field("PartResponse", 4),
  requestTrailers: field("Empty", 5),
  responseTrailers: field("Empty", 6),
  immediateResponse: field("ImmediateResponse", 7),
};

const MESSAGES = {
  ExternalProcessor: {
    methods: {
      Process: {
        requestType: "ProcessingRequest",
        requestStream: true,
        responseType: "ProcessingResponse",
        responseStream: true,
        comment: "",
      },
    },
  },
  ProcessingRequest: {
    fields: {
      ...REQUESTS,
      metadataContext: field("Metadata", 8),
      protocolConfig: field("ProtocolConfiguration", 11),
    },
    oneofs: { request: { oneof: Object.keys(REQUESTS) } },
  },
  Metadata: message({ filterMetadata: map("Struct", 1) }),
  Struct: message({ fields: map("Value", 1) }),
  Value: choice("kind", {
    nullValue: field("int32", 1),
    numberValue: field("double", 2),
    stringValue: field("string", 3),
    boolValue: field("bool", 4),
    structValue: field("Struct", 5),
    listValue: field("ListValue", 6),
  }),
  ListValue: message({ values: list("Value", 1) }),
  ProtocolConfiguration: message({ requestBodyMode: field("int32", 1), responseBodyMode: field("int32", 2) }),
  HttpHeaders: message({ headers: field("HeaderMap", 1), endOfStream: field("bool", 3) }),
  HeaderMap: message({ headers: list("HeaderValue", 1) }),
  HttpBody: message({ body: field("bytes", 1), endOfStream: field("bool", 2) }),
  ProcessingResponse: {
    fields: { ...RESPONSES, dynamicMetadata: field("Struct", 8), modeOverride: field("ProcessingMode", 9) },
    oneofs: { response: { oneof: Object.keys(RESPONSES) } },
  },
  Empty: message({}),
  // HeadersResponse and BodyResponse have the same fields.
  PartResponse: message({ response: field("CommonResponse", 1) }),
  CommonResponse: message({
    status: field("int32", 1),
    headerMutation: field("HeaderMutation", 2),
    bodyMutation: field("BodyMutation", 3),
    trailers: field("HeaderMap", 4),
  }),
  HeaderMutation: message({ setHeaders: list("HeaderValueOption", 1), removeHeaders: list("string", 2) }),
  BodyMutation: choice("mutation", {
    body: field("bytes", 1),
    clearBody: field("bool", 2),
    streamedResponse: field("StreamedBodyResponse", 3),
  }),
  StreamedBodyResponse: message({ body: field("bytes", 1), endOfStream: field("bool", 2) }),
  ImmediateResponse: message({
    status: field("HttpStatus", 1),
    headers: field("HeaderMutation", 2),
    body: field("bytes", 3),
    details: field("string", 5),
  }),
  HttpStatus: message({ code: field("int32", 1) }),
  HeaderValueOption: message({
    header: field("HeaderValue", 1),
    append: field("BoolValue", 2),
    appendAction: field("int32", 3),
  }),
  HeaderValue: message({ key: field("string", 1), value: field("string", 2), rawValue: field("bytes", 3) }),
  BoolValue: message({ value: field("bool", 1) }),
  ProcessingMode: message({
    requestHeaderMode: field("int32", 1),
    responseHeaderMode: field("int32", 2),
    requestBodyMode: field("int32", 3),
    responseBodyMode: field("int32", 4),
    requestTrailerMode: field("int32", 5),
    responseTrailerMode: field("int32", 6),
  }),
};

/** Only the service's full name appears on the wire, so all messages are in its package. */
export const PROTOCOL = {
  nested: { envoy: { nested: { service: { nested: { ext_proc: { nested: { v3: { nested: MESSAGES } } } } } } } },
} as GrpcProtocol;
