/**
 * The version of the package, put in by the bundler; a checkout that was not bundled says so.
 */
declare const PACKAGE_VERSION: string | undefined;

export const VERSION: string = typeof PACKAGE_VERSION === "string" ? PACKAGE_VERSION : "0.0.0-development";
