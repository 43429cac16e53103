"""Writes backends/vulkan/vk_xml.py from Khronos' vk.xml: the structs, commands and constants that are used.

    python3 ci/vulkan_api.py [/usr/share/vulkan/registry/vk.xml]     (Debian: apt install libvulkan-dev)

What is new in use gets its name in COMMANDS, STRUCTS or CONSTANTS below; structs that those hold by value or point
to come along.
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

REGISTRY = Path("/usr/share/vulkan/registry/vk.xml")
OUTPUT = Path(__file__).resolve().parent.parent / "zinc_rt" / "backends" / "vulkan" / "vk_xml.py"
WIDTH = 115


def split_names(text: str) -> list[str]:
    return text.split()


COMMANDS = split_names("""
vkGetInstanceProcAddr vkEnumerateInstanceVersion vkEnumerateInstanceLayerProperties
vkEnumerateInstanceExtensionProperties vkCreateInstance vkDestroyInstance vkEnumeratePhysicalDevices
vkGetPhysicalDeviceProperties vkGetPhysicalDeviceProperties2 vkGetPhysicalDeviceFeatures2
vkGetPhysicalDeviceMemoryProperties2 vkGetPhysicalDeviceQueueFamilyProperties vkEnumerateDeviceExtensionProperties
vkCreateDevice vkDestroyDevice vkGetDeviceQueue vkDeviceWaitIdle vkQueueWaitIdle vkQueueSubmit
vkAllocateMemory vkFreeMemory vkMapMemory vkUnmapMemory vkFlushMappedMemoryRanges vkInvalidateMappedMemoryRanges
vkCreateBuffer vkDestroyBuffer vkGetBufferMemoryRequirements vkBindBufferMemory vkGetBufferDeviceAddress
vkGetMemoryHostPointerPropertiesEXT
vkCreateShaderModule vkDestroyShaderModule vkCreatePipelineLayout vkDestroyPipelineLayout vkCreateComputePipelines
vkDestroyPipeline vkCreatePipelineCache vkDestroyPipelineCache vkGetPipelineCacheData
vkGetPipelineExecutablePropertiesKHR vkGetPipelineExecutableStatisticsKHR
vkGetPipelineExecutableInternalRepresentationsKHR
vkCreateCommandPool vkDestroyCommandPool vkResetCommandPool vkAllocateCommandBuffers vkFreeCommandBuffers
vkBeginCommandBuffer vkEndCommandBuffer vkCmdBindPipeline vkCmdPushConstants vkCmdDispatch vkCmdDispatchIndirect
vkCmdPipelineBarrier vkCmdCopyBuffer vkCmdFillBuffer vkCmdUpdateBuffer vkCmdResetQueryPool vkCmdWriteTimestamp
vkCreateQueryPool vkDestroyQueryPool vkGetQueryPoolResults
vkCreateSemaphore vkDestroySemaphore vkGetSemaphoreCounterValue vkWaitSemaphores vkSignalSemaphore
vkCreateDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT vkGetDeviceFaultInfoEXT
""")
STRUCTS = split_names("""
VkApplicationInfo VkDeviceQueueCreateInfo VkPhysicalDeviceVulkan11Features VkPhysicalDeviceVulkan12Features
VkPhysicalDeviceVulkan13Features VkPhysicalDeviceVulkan11Properties VkPhysicalDeviceVulkan12Properties
VkPhysicalDeviceVulkan13Properties VkPhysicalDeviceMaintenance4Properties
VkPhysicalDeviceExternalMemoryHostPropertiesEXT VkPhysicalDeviceMemoryBudgetPropertiesEXT
VkPhysicalDevicePCIBusInfoPropertiesEXT VkMemoryAllocateFlagsInfo VkImportMemoryHostPointerInfoEXT
VkExternalMemoryBufferCreateInfo VkPushConstantRange VkSpecializationInfo VkSpecializationMapEntry
VkPipelineShaderStageRequiredSubgroupSizeCreateInfo VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR
VkTimelineSemaphoreSubmitInfo VkSemaphoreTypeCreateInfo VkMemoryBarrier VkBufferMemoryBarrier
VkDebugUtilsMessengerCallbackDataEXT VkDispatchIndirectCommand VkPhysicalDeviceFaultFeaturesEXT
""")
CONSTANTS = split_names("""
VK_WHOLE_SIZE
VK_PHYSICAL_DEVICE_TYPE_OTHER VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU VK_PHYSICAL_DEVICE_TYPE_CPU
VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
VK_QUEUE_GRAPHICS_BIT VK_QUEUE_COMPUTE_BIT VK_QUEUE_TRANSFER_BIT
VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
VK_MEMORY_PROPERTY_HOST_CACHED_BIT VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_MAPPED_FOREIGN_MEMORY_BIT_EXT
VK_BUFFER_USAGE_TRANSFER_SRC_BIT VK_BUFFER_USAGE_TRANSFER_DST_BIT VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT VK_SHARING_MODE_EXCLUSIVE
VK_SHADER_STAGE_COMPUTE_BIT VK_PIPELINE_BIND_POINT_COMPUTE
VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR
VK_COMMAND_POOL_CREATE_TRANSIENT_BIT VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
VK_COMMAND_BUFFER_LEVEL_PRIMARY
VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
VK_PIPELINE_STAGE_TRANSFER_BIT VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT VK_PIPELINE_STAGE_HOST_BIT
VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
VK_ACCESS_INDIRECT_COMMAND_READ_BIT VK_ACCESS_SHADER_READ_BIT VK_ACCESS_SHADER_WRITE_BIT
VK_ACCESS_TRANSFER_READ_BIT VK_ACCESS_TRANSFER_WRITE_BIT VK_ACCESS_HOST_READ_BIT VK_ACCESS_HOST_WRITE_BIT
VK_ACCESS_MEMORY_READ_BIT VK_ACCESS_MEMORY_WRITE_BIT
VK_QUERY_TYPE_TIMESTAMP VK_QUERY_RESULT_64_BIT VK_QUERY_RESULT_WAIT_BIT
VK_SEMAPHORE_TYPE_TIMELINE
VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT
VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT
VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT
VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL
VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE
""")

# C's types in the words of vk_xml.py
SCALARS = {
    "char": "char", "float": "f32", "double": "f64", "uint8_t": "u8", "uint16_t": "u16", "uint32_t": "u32",
    "uint64_t": "u64", "int32_t": "i32", "int64_t": "i64", "size_t": "size", "int": "i32", "void": "void",
    "VkDeviceSize": "u64", "VkDeviceAddress": "u64", "VkFlags64": "u64", "VkBool32": "u32", "VkFlags": "u32",
    "VkSampleMask": "u32",
}  # fmt: skip
# Bases of allocators and pNext: pointers to them bring nothing along.
OPAQUE = frozenset({"VkAllocationCallbacks", "VkBaseInStructure", "VkBaseOutStructure"})


@dataclass(slots=True)
class Registry:
    """vk.xml, and the parts requested so far. `structs` are ordered so that those contained by value precede their
    users.
    """

    types: dict[str, Element] = field(default_factory=dict)
    commands: dict[str, Element] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    results: dict[int, str] = field(default_factory=dict)
    version: str = ""
    structs: dict[str, str] = field(default_factory=dict)
    stypes: dict[str, int] = field(default_factory=dict)

    def word(self, name: str) -> str:
        """Return a C type's word; for a struct its own name, which is added to `structs`."""
        if name in SCALARS:
            return SCALARS[name]
        element = self.types.get(name)
        category = None if element is None else element.get("category")
        if element is None or category is None or category == "funcpointer":
            return "ptr"
        if alias := element.get("alias"):
            return self.word(alias)
        if category in ("struct", "union"):
            self.add_struct(name)
            return f"|{name}" if category == "union" else name
        text = "".join(element.itertext())
        if category == "handle":
            return "u64" if "NON_DISPATCHABLE" in text else "ptr"
        if category == "bitmask":
            return "u64" if "VkFlags64" in text else "u32"
        return "i32"

    def pointer(self, declaration: str, name: str) -> str:
        element = self.types.get(name)
        if element is not None and element.get("category") == "struct" and name not in OPAQUE:
            self.add_struct(name)
        return "str" if name == "char" and declaration.count("*") == 1 else "ptr"

    def add_struct(self, name: str) -> None:
        if name in self.structs:
            return
        element = self.types[name]
        self.structs[name] = ""  # one that points to itself is there
        members = []
        for member in element.findall("member"):
            if "vulkan" not in (member.get("api") or "vulkan").split(","):
                continue
            declaration = "".join(declared_parts(member))
            called = member.findtext("name") or ""
            of = member.findtext("type") or ""
            word = self.pointer(declaration, of) if "*" in declaration else self.word(of)
            for size in re.findall(r"\[(\w+)\]", declaration):
                word += f"[{size if size.isdigit() else self.values[size]}]"
            if called == "sType" and member.get("values"):
                self.stypes[name] = self.values[str(member.get("values"))]
            members.append(f"{called}:{word}")
        del self.structs[name]  # behind those it holds by value
        self.structs[name] = " ".join(members)

    def prototype_words(self, name: str) -> str:
        """Return the words of a command's result and parameters."""
        command = self.commands[name]
        words = [self.word(command.findtext("proto/type") or "")]
        for parameter in command.findall("param"):
            if "vulkan" not in (parameter.get("api") or "vulkan").split(","):
                continue
            declaration = "".join(declared_parts(parameter))
            of = parameter.findtext("type") or ""
            words.append(self.pointer(declaration, of) if "*" in declaration else self.word(of))
        return " ".join(words)


def declared_parts(element: Element) -> list[str]:
    """Return the parts of a C declaration, without comments."""
    parts = [element.text or ""]
    for child in element:
        parts += ["" if child.tag == "comment" else "".join(child.itertext()), child.tail or ""]
    return parts


def value_of(element: Element, extension: str | None = None) -> int | None:
    """Return an enum's value: literal, as a bit, or by the registry's numbering of extensions."""
    if text := element.get("value"):
        try:
            return int(text.strip("()").rstrip("UL"), 0)
        except ValueError:
            return 2**64 - 1 if text == "(~0ULL)" else None
    if bit := element.get("bitpos"):
        return 1 << int(bit)
    if offset := element.get("offset"):
        number = int(element.get("extnumber") or extension or 0)
        value = 1_000_000_000 + (number - 1) * 1000 + int(offset)
        return -value if element.get("dir") == "-" else value
    return None


def read_registry(path: Path) -> Registry:
    """Read all of vk.xml."""
    root = ElementTree.parse(path).getroot()
    registry = Registry()
    for element in root.iterfind("types/type"):
        if name := element.get("name") or element.findtext("name"):
            registry.types.setdefault(name, element)
    for group in root.findall("enums"):
        for element in group.findall("enum"):
            note_values(registry, element, None, of_result=group.get("name") == "VkResult")
    for feature in root.findall("feature"):
        for element in feature.iter("enum"):
            if element.get("extends"):
                note_values(registry, element, None, of_result=element.get("extends") == "VkResult")
    for extension in root.iterfind("extensions/extension"):
        for element in extension.iter("enum"):
            if element.get("extends"):
                of_result = element.get("extends") == "VkResult" and extension.get("supported") != "disabled"
                note_values(registry, element, extension.get("number"), of_result=of_result)
    for element in list(root.iter("enum")):
        if (alias := element.get("alias")) in registry.values:
            registry.values[str(element.get("name"))] = registry.values[str(alias)]
    commands = {}
    for command in root.iterfind("commands/command"):
        commands[command.get("name") or command.findtext("proto/name") or ""] = command
    registry.commands = {name: commands.get(item.get("alias") or "", item) for name, item in commands.items()}
    header = next(
        "".join(e.itertext()) for e in root.iterfind("types/type") if e.findtext("name") == "VK_HEADER_VERSION"
    )
    complete = next(
        "".join(e.itertext())
        for e in root.iterfind("types/type")
        if e.findtext("name") == "VK_HEADER_VERSION_COMPLETE"
    )
    _, major, minor = (re.findall(r"\d+", complete.partition("(")[2]) + ["?"] * 3)[:3]
    registry.version = f"{major}.{minor}.{re.findall(r'[0-9]+', header)[-1]}"
    return registry


def note_values(registry: Registry, element: Element, extension: str | None, *, of_result: bool) -> None:
    value = value_of(element, extension)
    if value is None:
        return
    name = str(element.get("name"))
    registry.values[name] = value
    if of_result:
        registry.results.setdefault(value, name)


def generate_module(path: Path) -> str:
    """Return the text of vk_xml.py."""
    registry = read_registry(path)
    commands = {name: registry.prototype_words(name) for name in COMMANDS}
    for name in STRUCTS:
        registry.add_struct(name)
    lines = [f'"""The used part of vk.xml {registry.version}, as data. Generated by ci/vulkan_api.py."""', ""]
    lines += [f"{name} = {format_number(registry.values[name])}" for name in CONSTANTS]
    lines += ["", "# VkResult", "RESULTS = {"]
    lines += [f'    {value}: "{name}",' for value, name in sorted(registry.results.items(), reverse=True)]
    lines += ["}", "", "# VkStructureType, by struct", "STYPES = {"]
    lines += [
        f'    "{name}": {value},' for name, value in sorted(registry.stypes.items()) if name in registry.structs
    ]
    lines += ["}", "", "# member:type, in order; |Name is a union", "STRUCTS = {"]
    for name, members in registry.structs.items():
        lines += format_entry(name, members)
    lines += ["}", "", "# what it returns, what it takes", "COMMANDS = {"]
    for name, words in commands.items():
        lines += format_entry(name, words)
    return "\n".join([*lines, "}", ""])


def format_number(value: int) -> str:
    return hex(value) if value > 9 else str(value)


def format_entry(name: str, words: str) -> list[str]:
    if len(line := f'    "{name}": "{words}",') <= WIDTH:
        return [line]
    parts = textwrap.wrap(words, WIDTH - 12, break_long_words=False, break_on_hyphens=False)
    inner = [f'        "{part} "' for part in parts[:-1]] + [f'        "{parts[-1]}"']
    return [f'    "{name}": (', *inner, "    ),"]


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else REGISTRY
    if not path.is_file():
        print(f"{path}: no such file\n  next: apt install libvulkan-dev, or name another vk.xml", file=sys.stderr)
        return 2
    OUTPUT.write_text(generate_module(path), encoding="utf-8")
    print(f"wrote {OUTPUT}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
