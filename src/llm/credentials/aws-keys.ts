/**
 * AWS keys, and what is needed to find them where the configuration does not hold them.
 */

import type { Clock } from "../../base/clock.ts";
import type { Fetch } from "../../http/fetch.ts";

export interface AwsKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

export type Variables = Readonly<Record<string, string | undefined>>;

export interface AwsSourceOptions {
  /** A profile of the shared credentials file: then only that is looked at. */
  readonly profile: string | undefined;
  readonly region: string;
  readonly variables: Variables;
  readonly clock: Clock;
  readonly fetch: Fetch;
}
