"""The only readers and writers of the outside: settings, objects, registry, GPU pools."""
