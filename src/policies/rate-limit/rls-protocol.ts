/**
 * The part of Envoy's rate limit service protocol v3 that we speak, with its field numbers: what we do not read is
 * left out, a receiver skips it. As data, so that no .proto file has to travel with the program.
 */
import type { fromJSON } from "@grpc/proto-loader";

export const SERVICE_NAME = "envoy.service.ratelimit.v3.RateLimitService";

export interface RlsDescriptor {
  readonly entries: readonly { readonly key: string; readonly value: string }[];
}

export interface RlsRequest {
  readonly domain: string;
  readonly descriptors: readonly RlsDescriptor[];
  /** 0 counts as 1. */
  readonly hitsAddend: number;
}

export interface RlsHeader {
  readonly key: string;
  readonly value: string;
  readonly rawValue: Uint8Array;
}

export interface RlsStatus {
  readonly code: number;
  readonly currentLimit: { readonly requestsPerUnit: number; readonly unit: number } | null;
  readonly limitRemaining: number;
  readonly durationUntilReset: { readonly seconds: number; readonly nanos: number } | null;
}

export interface RlsResponse {
  readonly overallCode: number;
  readonly statuses: readonly RlsStatus[];
  readonly responseHeadersToAdd: readonly RlsHeader[];
  readonly requestHeadersToAdd: readonly RlsHeader[];
  readonly rawBody: Uint8Array;
}

export const CODE_OK = 1;
export const CODE_OVER_LIMIT = 2;

/** Seconds of `RateLimit.Unit`, by number; a month and a year as the reference service counts them. */
export const UNIT_SECONDS: Readonly<Record<number, number>> = {
  1: 1,
  2: 60,
  3: 3_600,
  4: 86_400,
  5: 2_592_000,
  6: 31_536_000,
  7: 604_800,
};

const field = (type: string, id: number) => ({ type, id });
const list = (type: string, id: number) => ({ rule: "repeated", type, id });

/** The messages in the JSON form of protobufjs. */
export const PROTOCOL: Parameters<typeof fromJSON>[0] = {
  nested: {
    envoy: {
      nested: {
        service: {
          nested: {
            ratelimit: {
              nested: {
                v3: {
                  nested: {
                    RateLimitService: {
                      methods: {
                        ShouldRateLimit: {
                          requestType: "RateLimitRequest",
                          responseType: "RateLimitResponse",
                          comment: "",
                        },
                      },
                    },
                    RateLimitRequest: {
                      fields: {
                        domain: field("string", 1),
                        descriptors: list("Descriptor", 2),
                        hitsAddend: field("uint32", 3),
                      },
                    },
                    Descriptor: { fields: { entries: list("Entry", 1) } },
                    Entry: { fields: { key: field("string", 1), value: field("string", 2) } },
                    RateLimitResponse: {
                      fields: {
                        overallCode: field("int32", 1),
                        statuses: list("Status", 2),
                        responseHeadersToAdd: list("HeaderValue", 3),
                        requestHeadersToAdd: list("HeaderValue", 4),
                        rawBody: field("bytes", 5),
                      },
                    },
                    Status: {
                      fields: {
                        code: field("int32", 1),
                        currentLimit: field("RateLimit", 2),
                        limitRemaining: field("uint32", 3),
                        durationUntilReset: field("Duration", 4),
                      },
                    },
                    RateLimit: { fields: { requestsPerUnit: field("uint32", 1), unit: field("int32", 2) } },
                    HeaderValue: {
                      fields: { key: field("string", 1), value: field("string", 2), rawValue: field("bytes", 3) },
                    },
                    Duration: { fields: { seconds: field("int64", 1), nanos: field("int32", 2) } },
                  },
                },
              },
            },
          },
        },
      },
    },
  },
};
