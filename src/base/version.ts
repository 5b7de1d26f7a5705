/**
 * Defines the package version, which the bundler sets. In a checkout that was not bundled, it is `0.0.0-development`.
 */
declare const PACKAGE_VERSION: string | undefined;

export const VERSION: string = typeof PACKAGE_VERSION === "string" ? PACKAGE_VERSION : "0.0.0-development";
