/**
 * Why a kubeconfig cannot be used, in one line that says what to do; and what its credential plugins see of their host.
 */
export class KubeconfigError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "KubeconfigError";
  }
}

/** Who runs the plugins: what they print for a person goes there. */
export interface PluginHost {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Somebody can answer a question. */
  readonly isInteractive: boolean;
  err(text: string): void;
}

export interface KubeconfigFlags {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly namespace?: string;
}
